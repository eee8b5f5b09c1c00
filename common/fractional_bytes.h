// Bytes as a real number: a share of a tensor, a layer that counts as the mean of several, what one value or one parameter takes.
// Whatever is allocated, sent or budgeted as a whole is Bytes (units.h); this is for the sums that lead there, so that nothing is
// rounded on the way.
//
//   const FractionalBytes shard = 2_B * parameters / 3;
//   const Seconds wire = shard / GigabitsPerSecond(400);
#pragma once

#include <compare>
#include <concepts>
#include <cstdint>

#include "common/units.h"

namespace weft {

class FractionalBytes {
 public:
  constexpr FractionalBytes() = default;
  explicit constexpr FractionalBytes(double count) : count_(count) {}
  /// Whole bytes are real ones too; exact below 2⁵³.
  constexpr FractionalBytes(Bytes whole) : count_(static_cast<double>(whole.count())) {}  // NOLINT(google-explicit-constructor)

  constexpr double count() const { return count_; }
  /// Without the fraction. Requires: |count()| < 2⁶³.
  constexpr Bytes Truncated() const { return Bytes(static_cast<int64_t>(count_)); }

  friend constexpr FractionalBytes operator+(FractionalBytes a, FractionalBytes b) { return FractionalBytes(a.count_ + b.count_); }
  friend constexpr FractionalBytes operator-(FractionalBytes a, FractionalBytes b) { return FractionalBytes(a.count_ - b.count_); }
  friend constexpr FractionalBytes operator*(FractionalBytes a, double n) { return FractionalBytes(a.count_ * n); }
  friend constexpr FractionalBytes operator*(double n, FractionalBytes a) { return a * n; }
  friend constexpr FractionalBytes operator/(FractionalBytes a, double n) { return FractionalBytes(a.count_ / n); }
  friend constexpr double operator/(FractionalBytes a, FractionalBytes b) { return a.count_ / b.count_; }
  constexpr FractionalBytes& operator+=(FractionalBytes b) { count_ += b.count_; return *this; }
  constexpr FractionalBytes& operator-=(FractionalBytes b) { count_ -= b.count_; return *this; }
  friend constexpr auto operator<=>(FractionalBytes, FractionalBytes) = default;

 private:
  double count_ = 0;
};

/// A real multiple of whole bytes.
template <std::floating_point Real>
constexpr FractionalBytes operator*(Bytes a, Real n) { return FractionalBytes(a) * n; }
template <std::floating_point Real>
constexpr FractionalBytes operator*(Real n, Bytes a) { return FractionalBytes(a) * n; }

constexpr Seconds operator/(FractionalBytes amount, BitsPerSecond rate) { return Seconds(amount.count() / rate.bytes_per_second()); }

}  // namespace weft

// Quantities as types, so that a wrong sum does not compile and no call site guesses a unit. Only operators with a
// meaning exist: bytes / rate = seconds, rate * seconds = bytes. Every operation inlines to plain arithmetic.
//
//   Seconds wire = 64_MiB / GigabitsPerSecond(400);
#pragma once

#include <chrono>
#include <cmath>
#include <compare>
#include <cstdint>

namespace weft {

/// A span of time in seconds, as a real number.
using Seconds = std::chrono::duration<double>;

/// An amount of data. Signed, so that differences are amounts too.
class Bytes {
 public:
  constexpr Bytes() = default;
  explicit constexpr Bytes(int64_t count) : count_(count) {}

  constexpr int64_t count() const { return count_; }

  friend constexpr Bytes operator+(Bytes a, Bytes b) { return Bytes(a.count_ + b.count_); }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return Bytes(a.count_ - b.count_); }
  friend constexpr Bytes operator*(Bytes a, int64_t n) { return Bytes(a.count_ * n); }
  friend constexpr Bytes operator*(int64_t n, Bytes a) { return a * n; }
  friend constexpr Bytes operator/(Bytes a, int64_t n) { return Bytes(a.count_ / n); }
  friend constexpr double operator/(Bytes a, Bytes b) {
    return static_cast<double>(a.count_) / static_cast<double>(b.count_);
  }
  constexpr Bytes& operator+=(Bytes b) { count_ += b.count_; return *this; }
  constexpr Bytes& operator-=(Bytes b) { count_ -= b.count_; return *this; }
  friend constexpr auto operator<=>(Bytes, Bytes) = default;

 private:
  int64_t count_ = 0;
};

/// The only type of a data rate.
class BitsPerSecond {
 public:
  constexpr BitsPerSecond() = default;
  explicit constexpr BitsPerSecond(double value) : value_(value) {}

  constexpr double value() const { return value_; }
  constexpr double bytes_per_second() const { return value_ / 8; }

  friend constexpr BitsPerSecond operator+(BitsPerSecond a, BitsPerSecond b) {
    return BitsPerSecond(a.value_ + b.value_);
  }
  friend constexpr BitsPerSecond operator-(BitsPerSecond a, BitsPerSecond b) {
    return BitsPerSecond(a.value_ - b.value_);
  }
  friend constexpr BitsPerSecond operator*(BitsPerSecond a, double factor) {
    return BitsPerSecond(a.value_ * factor);
  }
  friend constexpr BitsPerSecond operator*(double factor, BitsPerSecond a) { return a * factor; }
  friend constexpr BitsPerSecond operator/(BitsPerSecond a, double divisor) {
    return BitsPerSecond(a.value_ / divisor);
  }
  friend constexpr double operator/(BitsPerSecond a, BitsPerSecond b) { return a.value_ / b.value_; }
  friend constexpr auto operator<=>(BitsPerSecond, BitsPerSecond) = default;

 private:
  double value_ = 0;
};

constexpr BitsPerSecond MegabitsPerSecond(double rate) { return BitsPerSecond(rate * 1e6); }
constexpr BitsPerSecond GigabitsPerSecond(double rate) { return BitsPerSecond(rate * 1e9); }
constexpr BitsPerSecond GigabytesPerSecond(double rate) { return BitsPerSecond(rate * 8e9); }

constexpr Seconds operator/(Bytes amount, BitsPerSecond rate) {
  return Seconds(static_cast<double>(amount.count()) * 8 / rate.value());
}
constexpr BitsPerSecond operator/(Bytes amount, Seconds time) {
  return BitsPerSecond(static_cast<double>(amount.count()) * 8 / time.count());
}
/// Rounded to the nearest byte.
inline Bytes operator*(BitsPerSecond rate, Seconds time) {
  return Bytes(std::llround(rate.value() * time.count() / 8));
}

/// An amount of floating-point work; a multiply-add counts two.
class Flops {
 public:
  constexpr Flops() = default;
  explicit constexpr Flops(double count) : count_(count) {}
  constexpr double count() const { return count_; }
  friend constexpr Flops operator+(Flops a, Flops b) { return Flops(a.count_ + b.count_); }
  friend constexpr Flops operator*(Flops a, double n) { return Flops(a.count_ * n); }
  friend constexpr Flops operator*(double n, Flops a) { return a * n; }
  constexpr Flops& operator+=(Flops b) { count_ += b.count_; return *this; }
  friend constexpr auto operator<=>(Flops, Flops) = default;

 private:
  double count_ = 0;
};

/// A rate of floating-point work.
class FlopsPerSecond {
 public:
  constexpr FlopsPerSecond() = default;
  explicit constexpr FlopsPerSecond(double value) : value_(value) {}
  constexpr double value() const { return value_; }
  friend constexpr FlopsPerSecond operator*(FlopsPerSecond a, double n) { return FlopsPerSecond(a.value_ * n); }
  friend constexpr auto operator<=>(FlopsPerSecond, FlopsPerSecond) = default;

 private:
  double value_ = 0;
};

constexpr Seconds operator/(Flops work, FlopsPerSecond rate) { return Seconds(work.count() / rate.value()); }

namespace literals {
constexpr Bytes operator""_B(unsigned long long n) { return Bytes(static_cast<int64_t>(n)); }
constexpr Bytes operator""_KiB(unsigned long long n) { return Bytes(static_cast<int64_t>(n) << 10); }
constexpr Bytes operator""_MiB(unsigned long long n) { return Bytes(static_cast<int64_t>(n) << 20); }
constexpr Bytes operator""_GiB(unsigned long long n) { return Bytes(static_cast<int64_t>(n) << 30); }
}  // namespace literals

}  // namespace weft

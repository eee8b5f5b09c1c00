// For mutation tests of what comes from outside: how many rounds, and how bytes are spoiled.
#pragma once

#include <cstdlib>
#include <cstring>
#include <random>

namespace weft::net::testing {

/// WEFT_FUZZ_ROUNDS, else `usual`.
inline int FuzzRounds(int usual) {
  const char* text = std::getenv("WEFT_FUZZ_ROUNDS");
  return text ? std::atoi(text) : usual;
}

/// Flips up to `most` bits or bytes of an object, between `from` and `to` (0: its end).
template <typename T>
void Spoil(T* object, std::mt19937_64& random, uint64_t most, size_t from = 0, size_t to = 0) {
  auto* bytes = reinterpret_cast<unsigned char*>(object);
  if (to == 0) to = sizeof *object;
  for (uint64_t n = 1 + random() % most; n > 0; --n) {
    unsigned char& byte = bytes[from + random() % (to - from)];
    byte = static_cast<unsigned char>(random() % 2 ? random() : byte ^ 1u << random() % 8);
  }
}

}  // namespace weft::net::testing

// Lets clang read LibTorch 1.13's headers as C++20. They use std::vector<c10::IValue> inside IValue
// itself; GCC puts up with that, clang instantiates constexpr members at once and finds the type
// incomplete. So clang-tidy gets a std::vector whose members are not constexpr. GCC's standard
// library, version 12.
#include <memory>
#include <string>
#if defined(_GLIBCXX20_CONSTEXPR)
#undef _GLIBCXX20_CONSTEXPR
#define _GLIBCXX20_CONSTEXPR inline
// Declared constexpr elsewhere before; only constant expressions would miss it.
#define __fill_a1 __fill_a1_of_bits
#include <bits/stl_vector.h>
// The second needs the first.
#include <bits/stl_bvector.h>
#undef __fill_a1
#include <vector>
#undef _GLIBCXX20_CONSTEXPR
#define _GLIBCXX20_CONSTEXPR constexpr
#endif

#pragma once

#include "sape2/dist/team.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <string>

namespace sape2::dist {

/// A store of LibTorch and the way to it.
struct Meeting {
  c10::intrusive_ptr<c10d::Store> store;      ///< for short questions
  c10::intrusive_ptr<c10d::Store> libraries;  ///< the same store by a connection of its own, in
                                              ///< which a library may wait
  std::string own_address;                    ///< by which this machine reaches the store
  bool here = false;                          ///< this process keeps it
};

/// Connects to the store of a place, which rank 0 keeps unless the launcher does. Throws Error with
/// one sentence where there is none, after at most `patience.join` seconds.
Meeting meet(const Place& place, const Patience& patience);

/// "host:port" of a place, for people.
std::string meeting_point(const Place& place);

std::vector<uint8_t> bytes_of(const std::string& text);
std::string text_of(const std::vector<uint8_t>& bytes);

}  // namespace sape2::dist

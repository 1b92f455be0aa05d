// How the module does its work in the midst of a program's calls.
#pragma once

#include <cerrno>
#include <exception>

#include "os/cancel.h"

namespace weft::check {

inline thread_local constinit bool inside = false;  // finding the places may fail calls of its own

// Does the work with errno and exceptions kept from the program: without memory a finding is lost.
// REQUIRES: !inside
template <class Work>
void inside_once(Work work) {
  const int before = errno;
  inside = true;
  try {
    work();
  } catch (const std::exception&) {  // it is lost
  }
  inside = false;
  errno = before;
}

// The observer runs in the midst of the program's calls: its thread is not cancelled meanwhile, and
// where it is in here already, by a call of its own or in the handler of a signal, nothing is
// observed.
template <class Work>
void observe(Work work) {
  if (inside) return;
  const os::NoCancel guard;
  inside_once(work);
}

}  // namespace weft::check

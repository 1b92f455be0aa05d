// What a call does whose n-th allocation, or n-th system call, fails: it fails with the right errno
// and leaves nothing, and works straight afterwards.
#pragma once

#include <cstdlib>
#include <functional>

#include "abi_support.h"
#include "support/nth_fails.h"

namespace weft::abi {

using test::each_fails;
using test::Fails;
using test::NthFails;
using test::open_descriptors;

// Its text is too long to be kept within a std::string: what makes one takes memory.
inline constexpr const char* kHere = "127.100.100.100";
inline constexpr Fails kBoth[] = {Fails::kAllocation, Fails::kSystemCall};

inline bool says(int error, int failed) {
  if (failed == ENOBUFS || failed == ENOSPC) return error == failed || error == ENOMEM;
  return error == failed;
}

// Makes one thing, and gives it up again.
struct Thing {
  const char* name;
  std::function<bool()> make;
  std::function<void()> end;
};

// The first time, things are made once for the process: their descriptors stay.
inline void check(const Thing& thing) {
  SCOPED_TRACE(thing.name);
  for (const bool first : {true, false}) {
    for (const Fails kind : kBoth) {
      each_fails(kind, [&](NthFails& fails) {
        const std::size_t before = open_descriptors();
        errno = 0;
        const bool made = fails.during(thing.make);
        const int error = errno;
        if (made) {
          thing.end();
        } else {
          EXPECT_TRUE(fails.has_failed()) << strerror(error);
          EXPECT_TRUE(says(error, fails.error())) << fails.name() << " gives " << strerror(error);
        }
        if (!first) {
          // A connection that ended before this may close its socket only now.
          EXPECT_TRUE(eventually([&] { return open_descriptors() <= before; }))
              << fails.name() << ": " << open_descriptors() << " descriptors, " << before
              << " before";
        }
        ASSERT_TRUE(thing.make()) << "behind " << fails.name() << ": " << strerror(errno);
        thing.end();
      });
    }
  }
}

// Destroying needs nothing: it succeeds although the n-th allocation would fail.
template <class Call>
void check_end(const char* name, Call make_and_end) {
  SCOPED_TRACE(name);
  for (const Fails kind : kBoth) {
    each_fails(kind, [&](NthFails& fails) { EXPECT_EQ(make_and_end(fails), 0) << fails.name(); });
  }
}

template <class T>
Thing thing(const char* name, std::function<T*()> make, std::function<int(T*)> end) {
  const auto made = std::make_shared<T*>();
  return {name, [=] { return (*made = make()) != nullptr; },
          [=] { EXPECT_EQ(end(*made), 0) << name << ": " << strerror(errno); }};
}

inline rdma_cm_id* new_id(rdma_event_channel* channel) {
  rdma_cm_id* id = nullptr;
  return rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0 ? id : nullptr;
}

// One step of an id, tried again where it has failed. `before` makes an id that is ready for it;
// `behind` waits for what comes of the step.
inline void check_step(
    const char* name, const std::function<rdma_cm_id*()>& before,
    const std::function<int(rdma_cm_id*)>& step,
    const std::function<void(rdma_cm_id*)>& behind = [](rdma_cm_id*) {}) {
  rdma_cm_id* id = before();
  const auto end = [&] {
    if (id->qp != nullptr) rdma_destroy_qp(id);
    EXPECT_EQ(rdma_destroy_id(id), 0);
  };
  check({name, [&] { return step(id) == 0; },
         [&] {
           behind(id);
           end();
           id = before();
         }});
  end();
}

}  // namespace weft::abi

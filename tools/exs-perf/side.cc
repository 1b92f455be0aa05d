#include "exs-perf/side.h"

#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>

namespace exs_perf {
namespace {

using Clock = std::chrono::steady_clock;

// Round trips before the clock starts, and requests between two looks at it.
constexpr int kWarmUp = 200;
constexpr int kBetweenLooks = 16;
constexpr int kCloseSeconds = 5;
constexpr std::size_t kWholeFrom = 8192;  // streams: receives of more wait for all of it

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

void check(bool good, const char* what) {
  if (!good) fail_with(std::string(what) + ": " + std::strerror(errno));
}

bool is_stream(Mode mode) { return mode == Mode::kStream || mode == Mode::kTcp; }

Side::Side(int fd, const Plan& plan)
    : fd_(fd),
      plan_(plan),
      queue_(exs_qcreate(static_cast<int>(3 * plan.depth + 16))),
      memory_(static_cast<std::size_t>(plan.size) * plan.buffers) {
  check(queue_ >= 0, "exs_qcreate");
  const int wait = static_cast<int>(plan.wait);
  check(exs_qmodify(queue_, EXS_QATTR_WAIT, &wait) == 0, "exs_qmodify");
  region_ = exs_mregister(memory_.data(), memory_.size(), 0);
  check(region_ >= 0, "exs_mregister");
  if (is_stream(mode()) && plan.size >= kWholeFrom) flags_ = MSG_WAITALL;
}

Side::~Side() {
  // In order: a reset could overtake the peer's answer. A peer that is gone is not waited for.
  const linger limit{1, kCloseSeconds};
  exs_setsockopt(fd_, SOL_SOCKET, SO_LINGER, &limit, sizeof limit);
  exs_close(fd_, kBlock, 0);
  exs_mderegister(region_);
  exs_qdelete(queue_);
}

double Side::latency_us() {
  const auto round = [this] {
    send_one();
    receive_one();
  };
  for (int i = 0; i < kWarmUp; ++i) round();
  const double us = median_us(wanted_seconds(), round) / 2;
  settle();
  finish();
  return us;
}

void Side::answer() {
  while (receive_one()) send_one();
  settle();
  finish();
}

// Sends for as long as the plan says; the time ends when the peer has everything.
std::uint64_t Side::stream_out(double& seconds) {
  const auto start = Clock::now();
  std::uint64_t messages = 0;
  for (std::uint32_t i = 0; i < plan_.depth; ++i) send(i);
  std::uint32_t outstanding = plan_.depth;
  while (outstanding != 0) {
    const exs_event_t event = next();
    ++messages;
    --outstanding;
    if (since(start) >= wanted_seconds()) continue;
    send(static_cast<std::uint32_t>(event.ahandle));
    ++outstanding;
  }
  finish();
  seconds = since(start);
  return messages * plan_.size;
}

// Twice as many receives as sends: the sender has finished one long before it has arrived.
void Side::stream_in() {
  const std::uint32_t receives = 2 * plan_.depth;
  for (std::uint32_t i = 0; i < receives; ++i) receive(i, flags_);
  std::uint32_t outstanding = receives;
  while (outstanding != 0) {
    const exs_event_t event = next();
    --outstanding;
    if (exs_evt_length(&event) == 0) continue;  // the end; the others find it too
    receive(static_cast<std::uint32_t>(event.ahandle), flags_);
    ++outstanding;
  }
  finish();
}

double Side::persistent_us() {
  const auto round = [this] {
    receive(0, 0);
    next();
  };
  for (int i = 0; i < kWarmUp; ++i) round();
  const double us = median_us(wanted_seconds(), round);
  finish();
  return us;
}

std::uint64_t Side::read_persistent(double& seconds) {
  const auto start = Clock::now();
  std::uint64_t messages = 0;
  for (std::uint32_t i = 0; i < plan_.depth; ++i) receive(i, 0);
  std::uint32_t outstanding = plan_.depth;
  while (outstanding != 0) {
    const exs_event_t event = next();
    ++messages;
    --outstanding;
    if (messages % kBetweenLooks == 0 && since(start) >= wanted_seconds()) break;
    receive(static_cast<std::uint32_t>(event.ahandle), 0);
    ++outstanding;
  }
  for (; outstanding != 0; --outstanding, ++messages) next();
  seconds = since(start);
  finish();
  return messages * plan_.size;
}

// The memory is offered until the client has finished.
void Side::offer_persistent() {
  send(0, EXS_PERSISTENT);
  receive(plan_.depth > 1 ? 1 : 0, 0);
  while (next().type != EXS_EVT_RECV) {
  }
  check(exs_cancel(fd_, EXS_CAF_FILDES, 0) == 0, "exs_cancel");
}

}  // namespace exs_perf

// One end of a data connection, and what it does in each workload.
#pragma once

#include <sys/exs.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "exs-perf/workload.h"

namespace exs_perf {

inline constexpr exs_qhandle_t kBlock = EXS_QHANDLE_INVALID;
inline constexpr exs_mhandle_t kPlain = EXS_MHANDLE_UNREGISTERED;

// Ends the program with errno's text if not `good`.
void check(bool good, const char* what);
[[nodiscard]] bool is_stream(Mode mode);

// One end of a data connection: its socket, queue and memory.
class Side {
 public:
  Side(int fd, const Plan& plan);
  ~Side();
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  [[nodiscard]] Mode mode() const { return static_cast<Mode>(plan_.mode); }

  void send(std::uint32_t slot, int flags = 0) {
    check(exs_send(fd_, at(slot), plan_.size, flags, queue_, slot, region_) == 0, "exs_send");
  }
  void receive(std::uint32_t slot, int flags) {
    check(exs_recv(fd_, at(slot), plan_.size, flags, queue_, slot, region_) == 0, "exs_recv");
  }
  exs_event_t next() {
    exs_event_t event;
    check(exs_qdequeue(queue_, &event, 1, nullptr) == 1, "exs_qdequeue");
    if (event.error != 0) {
      fail_with(std::string(exs_strevent(event.type)) + ": " + std::strerror(event.error));
    }
    return event;
  }
  // Waits for a whole message; its own send may end meanwhile. False: the end of the stream.
  bool receive_one() {
    receive(0, is_stream(mode()) ? MSG_WAITALL : 0);
    for (;;) {
      const exs_event_t event = next();
      if (event.type == EXS_EVT_RECV) return exs_evt_length(&event) == plan_.size;
      --sending_;
    }
  }
  void send_one() {
    send(plan_.depth > 1 ? 1 : 0);
    ++sending_;
  }
  void settle() {
    while (sending_ > 0) {
      if (next().type == EXS_EVT_SEND) --sending_;
    }
  }
  void finish() { check(exs_shutdown(fd_, EXS_SHUT_WR, kBlock, 0) == 0, "exs_shutdown"); }

  double latency_us();
  void answer();
  std::uint64_t stream_out(double& seconds);
  void stream_in();
  double persistent_us();
  std::uint64_t read_persistent(double& seconds);
  void offer_persistent();

 private:
  std::uint8_t* at(std::uint32_t slot) {
    return memory_.data() + static_cast<std::size_t>(slot % plan_.buffers) * plan_.size;
  }
  [[nodiscard]] double wanted_seconds() const { return plan_.milliseconds / 1000.0; }

  int fd_;
  Plan plan_;
  exs_qhandle_t queue_;
  std::vector<std::uint8_t> memory_;
  exs_mhandle_t region_ = EXS_MHANDLE_INVALID;
  int flags_ = 0;
  int sending_ = 0;
};

}  // namespace exs_perf

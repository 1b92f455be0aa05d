// The workloads of exs-perf: what a client asks for, and what both ends do.
#pragma once

#include <sys/exs.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace exs_perf {

enum class Mode : std::uint32_t {
  kNormal,
  kImmediate,
  kPersistent,
  kStream,
  kTcp,
  kPacketTcp,
  kUring,
};

std::optional<Mode> mode_of(const std::string& name);
const char* name_of(Mode mode);
std::vector<Mode> all_modes();  // that can be measured here
// Immediate data has a limit.
bool fits(Mode mode, std::size_t size);

// Sent to the server on each connection, in host order: both ends are this program, and machines of
// one byte order.
struct Plan {
  std::uint32_t mode = 0;
  std::uint32_t size = 0;
  std::uint32_t depth = 0;
  std::uint32_t milliseconds = 0;
  std::uint32_t wait = 0;
  std::uint32_t latency = 0;
  std::uint32_t buffers = 0;  // messages share so many; at least 1
};

// As many as keep the memory in the cache, as `weft perf` does.
std::uint32_t usual_buffers(std::size_t size, std::uint32_t depth);

struct Result {
  double latency_us = 0;
  double mb_per_s = 0;
  double cpu_s_per_gb = 0;
  double direct_percent = 0;  // of the bytes: placed without a copy
};

// A client's connection to a server, over which both agree on what comes next.
class Client {
 public:
  // Ends the program when there is no server.
  Client(const std::string& host, const std::string& port);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Median of `rounds`. Ends the program when something fails.
  Result measure(Plan plan, int rounds, bool latency, bool bandwidth);

 private:
  Result measure_once(const Plan& plan);

  std::string host_;
  int control_ = -1;
};

// Serves clients one after another; with `once` ends after the first. `ready` is told the port.
void serve(const std::string& host, const std::string& port, bool once,
           const std::function<void(int)>& ready);

[[noreturn]] void fail_with(const std::string& what);

// Calls `round` until so much time has passed; the median time of one, in microseconds.
double median_us(double seconds, const std::function<void()>& round);

}  // namespace exs_perf

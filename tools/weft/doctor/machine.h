// What `weft doctor` knows of a machine. Facts only; doctor/findings.h judges them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/run/kernel.h"

namespace weft::cli {

struct PortUse {
  std::uint16_t port = 0;
  std::string use;     // the command that has it as its default
  bool taken = false;  // somebody listens there now
};

struct Machine {
  std::string kernel;
  std::size_t cpus = 0;  // that this process may use
  std::string crc_method;
  std::string configuration_error;  // empty: the configuration is usable
  std::uint64_t open_files_soft = 0;
  std::uint64_t open_files_hard = 0;
  // Congestion control
  std::string congestion_default;
  std::string congestion_allowed;    // names with spaces between: any user may choose these
  std::string congestion_available;  // likewise: known to the kernel
  std::string congestion_wanted;     // by Weft's setting loopback_congestion; empty: none
  // Values of /proc/sys; nothing where the kernel has no such file
  std::optional<std::uint64_t> receive_buffer_max;  // third of net.ipv4.tcp_rmem, bytes
  std::optional<std::uint64_t> send_buffer_max;     // third of net.ipv4.tcp_wmem, bytes
  std::optional<std::uint64_t> somaxconn;
  std::optional<std::uint64_t> slow_start_after_idle;
  // Verbs
  std::string dropin_folder;          // with Weft's libibverbs.so.1; empty: not found
  std::string dropin_error;           // why not
  std::string system_verbs;           // path of the system's libibverbs.so.1; empty: none
  std::optional<unsigned> rdma_core;  // its release, from the file name
  KernelRdma kernel_rdma;             // devices beside Weft's
  std::string cm_wish = "auto";       // WEFT_REAL_CM
  std::vector<PortUse> ports;         // the default ports
  bool root = false;                  // effective user id 0
  bool network_namespaces = false;    // this user can make one
};

// Looks at this machine. Changes nothing. Takes a few milliseconds.
[[nodiscard]] Machine look_at_machine();

}  // namespace weft::cli

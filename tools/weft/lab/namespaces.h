// A host of a lab: namespaces of its own for network, files, names, processes and IPC.
#pragma once

#include <string>

#include "weft/command.h"
#include "weft/common/net.h"

namespace weft::cli {

// Where a host keeps what its processes need of the lab, in memory of its own.
inline constexpr const char* kLabFolder = "/dev/shm/.weft-lab";
[[nodiscard]] std::string lab_file(const std::string& name);

// Whose processes a lab runs, as the host outside knows them.
struct LabUser {
  unsigned uid = 0;
  unsigned gid = 0;
  bool in_namespace = false;  // the lab needs a user namespace, since it is no root
};
// Before any host: a user namespace for an ordinary user. Single-threaded processes only.
[[nodiscard]] Outcome<LabUser> enter_lab();

// A process with namespaces of its own, as fork() makes one: 0 in the child, which is its number 1.
[[nodiscard]] Outcome<int> fork_host();

// The device that is the terminal of this process; empty: it has none, or it has no name here.
[[nodiscard]] std::string controlling_terminal();

// In the child: names, files and the network interface, whose frames the descriptor reads and
// writes, each behind a header of 10 bytes (<linux/virtio_net.h>).
struct HostNetwork {
  bool large_frames = true;  // frames of 64 KiB, which the kernel would cut into packets otherwise
  unsigned queue = 0;        // frames that may wait to be read; 0: as the kernel chooses
};
// `terminal`: what /dev/tty is there, for processes that have no terminal of their own; empty:
// none.
[[nodiscard]] Outcome<UniqueFd> set_up_host(unsigned rank, unsigned hosts,
                                            const HostNetwork& network,
                                            const std::string& terminal);

// In a process of a host that is about to execute a program: the user is who started the lab.
[[nodiscard]] Outcome<void> become_user(const LabUser& user);

}  // namespace weft::cli

// The first process of a host of a lab, which starts all others there and reaps them.
#pragma once

#include "weft/common/net.h"
#include "weft/lab/lab_message.h"
#include "weft/lab/namespaces.h"
#include "weft/run/environment.h"

namespace weft::cli {

struct HostPlan {
  unsigned rank = 0;
  unsigned hosts = 1;
  HostNetwork network;
  LabUser user;
  std::string terminal;  // of the caller; empty: there is none
  // The commands of the lab, and how they are run: by Weft's libraries or as they are.
  std::vector<ProgramOptions> commands;
  bool plain = false;
  bool loopback = false;  // it is no host: its commands run on this machine
};

// Sets the host up, says so, and serves the lab until that has gone. Then nothing of the host is
// left, since the kernel ends all processes of a namespace with its first one. On loopback it ends
// the commands and what is in their process groups.
[[noreturn]] void run_host(const HostPlan& plan, UniqueFd lab);

}  // namespace weft::cli

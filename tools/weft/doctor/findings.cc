#include "weft/doctor/findings.h"

#include <fmt/format.h>

#include <sstream>

namespace weft::cli {
namespace {

using Level = Finding::Level;

// A connection takes one descriptor; a server also needs some for itself.
constexpr std::uint64_t kFewOpenFiles = 1024;
// Bandwidth times delay of 10 Gbit/s over 1 ms is 1.25 MB; the kernel's own default is 4 to 6 MiB.
constexpr std::uint64_t kSmallBufferBytes = 4U << 20U;
constexpr std::uint64_t kShortBacklog = 1024;  // limits::kBacklog
constexpr unsigned kNewestKnownRelease = 65;   // of rdma-core; see docs/programs.md
constexpr unsigned kBuiltForRelease = 44;

bool contains_word(const std::string& words, const std::string& wanted) {
  std::istringstream in(words);
  for (std::string word; in >> word;) {
    if (word == wanted) return true;
  }
  return false;
}

Finding ok(std::string topic, std::string found) {
  return {Level::kOk, std::move(topic), std::move(found), "", ""};
}

Finding judge_configuration(const Machine& m) {
  if (m.configuration_error.empty()) return ok("configuration", "usable");
  return {Level::kProblem, "configuration", m.configuration_error,
          "mend that line or variable; `weft info --all` lists keys and values",
          "no program can open the device until then"};
}

Finding judge_cpus(const Machine& m) {
  if (m.cpus > 1) return ok("CPUs", fmt::format("{}, {}", m.cpus, m.kernel));
  return {Level::kAdvice, "CPUs", fmt::format("{}, {}", m.cpus, m.kernel),
          "let programs wait on completion channels instead of polling, and set spin=0",
          "a program that polls keeps the only CPU from its peer on this machine"};
}

Finding judge_crc(const Machine& m) {
  if (m.crc_method != "table") return ok("CRC32C", m.crc_method);
  return {Level::kAdvice, "CRC32C", "computed by table: this CPU has no instruction for it",
          "set crc=off on both sides if the network is trusted (see SECURITY.md)",
          "the table takes several times as long as an instruction, for every byte"};
}

Finding judge_open_files(const Machine& m) {
  const std::string found =
      fmt::format("{} per process, up to {} on request", m.open_files_soft, m.open_files_hard);
  if (m.open_files_soft > kFewOpenFiles) return ok("open files", found);
  return {Level::kAdvice, "open files", found,
          "`ulimit -n 65536`, or LimitNOFILE= in a systemd unit",
          fmt::format("each connection takes one: a server now ends at about {} connections",
                      m.open_files_soft)};
}

Finding judge_congestion(const Machine& m) {
  const std::string& wanted = m.congestion_wanted;
  const std::string found =
      fmt::format("{} by default; on loopback Weft asks for {}", m.congestion_default,
                  wanted.empty() ? "nothing else" : wanted);
  if (wanted.empty() || wanted == m.congestion_default ||
      contains_word(m.congestion_allowed, wanted) ||
      (m.root && contains_word(m.congestion_available, wanted))) {
    return ok("congestion", found);
  }
  return {Level::kAdvice, "congestion", found + ", which this user may not choose",
          fmt::format("as root: sysctl net.ipv4.tcp_allowed_congestion_control='{} {}'",
                      m.congestion_allowed, wanted),
          fmt::format("with {} as default, pacing can halve the bandwidth inside the machine",
                      m.congestion_default)};
}

Finding judge_buffers(const Machine& m) {
  if (!m.receive_buffer_max || !m.send_buffer_max) return ok("TCP buffers", "unknown");
  const std::string found = fmt::format("up to {} KiB to receive, {} KiB to send",
                                        *m.receive_buffer_max / 1024, *m.send_buffer_max / 1024);
  if (*m.receive_buffer_max >= kSmallBufferBytes && *m.send_buffer_max >= kSmallBufferBytes) {
    return ok("TCP buffers", found);
  }
  return {Level::kAdvice, "TCP buffers", found,
          "as root: sysctl net.ipv4.tcp_rmem='4096 131072 6291456' "
          "net.ipv4.tcp_wmem='4096 16384 4194304'",
          "a connection moves at most one buffer per round trip: 1 MiB at 10 ms is 105 MB/s"};
}

Finding judge_idle(const Machine& m) {
  if (m.slow_start_after_idle.value_or(0) == 0) return ok("idle connections", "keep their window");
  return {Level::kAdvice, "idle connections", "start slowly again after a pause",
          "as root: sysctl net.ipv4.tcp_slow_start_after_idle=0",
          "the first large message after a pause takes fewer round trips; only between machines"};
}

Finding judge_backlog(const Machine& m) {
  if (!m.somaxconn || *m.somaxconn >= kShortBacklog) {
    return ok("listen backlog", m.somaxconn ? fmt::format("{}", *m.somaxconn) : "unknown");
  }
  return {Level::kAdvice, "listen backlog", fmt::format("{}", *m.somaxconn),
          fmt::format("as root: sysctl net.core.somaxconn={}", kShortBacklog),
          "a burst of clients larger than that is refused or has to try again"};
}

Finding judge_dropin(const Machine& m) {
  if (!m.dropin_folder.empty()) return ok("verbs for programs", m.dropin_folder);
  return {Level::kProblem, "verbs for programs", m.dropin_error,
          "install libibverbs-dev and librdmacm-dev and build again, or install the package weft",
          "`weft run` needs them; the C++ API does not"};
}

Finding judge_rdma_core(const Machine& m) {
  if (m.system_verbs.empty()) {
    return ok("rdma-core", "not installed; needed only to compile verbs programs");
  }
  if (!m.rdma_core) return ok("rdma-core", m.system_verbs + ", of an unknown release");
  const std::string found = fmt::format("release {} ({})", *m.rdma_core, m.system_verbs);
  if (*m.rdma_core <= kNewestKnownRelease) return ok("rdma-core", found);
  return {Level::kAdvice, "rdma-core", found,
          "expect programs that need functions newer than release 65 not to start",
          fmt::format("Weft implements the functions of release {}, and answers for those up to {}",
                      kBuiltForRelease, kNewestKnownRelease)};
}

// rdma_ucm is loaded, and no device is there.
Finding judge_cm_without_device(const Machine& m) {
  const std::string found = "none besides weft0, though rdma_ucm is loaded";
  if (m.cm_wish != "on") {
    return ok("RDMA devices", found + "; under `weft run` rdma_cm connects over weft0");
  }
  return {Level::kProblem, "RDMA devices", found + ", and WEFT_REAL_CM is on",
          "unset WEFT_REAL_CM, or set it to auto",
          "programs that use rdma_cm fail under `weft run` with \"No RDMA devices were detected\""};
}

Finding judge_devices(const Machine& m) {
  const KernelRdma& kernel = m.kernel_rdma;
  if (kernel.devices.empty()) {
    return kernel.cm ? judge_cm_without_device(m) : ok("RDMA devices", "none besides weft0");
  }
  std::string names;
  for (const std::string& name : kernel.devices) names += (names.empty() ? "" : ", ") + name;
  if (!kernel.cm) return ok("RDMA devices", names + ", listed before weft0");
  if (!is_real_cm(kernel, m.cm_wish)) {
    return ok("RDMA devices", names +
                                  ", listed before weft0; WEFT_REAL_CM is off, so rdma_cm "
                                  "connects over weft0");
  }
  return {Level::kAdvice, "RDMA devices",
          names + "; /dev/infiniband/rdma_cm can be opened, so rdma_cm connects over them",
          "`weft run --real-cm=off -- PROGRAM` to connect over Weft",
          "without it, programs that use rdma_cm do not reach weft0 on this machine"};
}

Finding judge_ports(const Machine& m) {
  std::string taken;
  std::string all;
  for (const PortUse& p : m.ports) {
    const std::string text = fmt::format("{} ({})", p.port, p.use);
    all += (all.empty() ? "" : ", ") + text;
    if (p.taken) taken += (taken.empty() ? "" : ", ") + text;
  }
  if (taken.empty()) return ok("default ports", all + ": free");
  return {Level::kAdvice, "default ports", taken + ": somebody listens there",
          "name another port: --listen PORT there, HOST:PORT here",
          "a server that is to use the default port cannot start now"};
}

Finding judge_namespaces(const Machine& m) {
  if (m.network_namespaces) return ok("network namespaces", "this user can make them");
  return {
      Level::kAdvice, "network namespaces", "this user cannot make them",
      "run as root, or allow user namespaces (Debian: sysctl kernel.unprivileged_userns_clone=1)",
      "examples/two-hosts.sh and part of `weft report` need them; nothing else does"};
}

}  // namespace

std::vector<Finding> judge(const Machine& m) {
  return {judge_configuration(m), judge_cpus(m),      judge_crc(m),     judge_open_files(m),
          judge_congestion(m),    judge_buffers(m),   judge_idle(m),    judge_backlog(m),
          judge_dropin(m),        judge_rdma_core(m), judge_devices(m), judge_ports(m),
          judge_namespaces(m)};
}

}  // namespace weft::cli

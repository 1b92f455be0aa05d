#include "weft/lab/namespaces.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>

#include "lab/commands.h"

namespace weft::cli {
namespace {

constexpr int kNamespaces = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET;
constexpr const char* kInterface = "eth0";

tl::unexpected<Failure> no(const std::string& what) {
  return failure(fmt::format("{}: {}", what, std::strerror(errno)));
}

Outcome<void> write_file(const std::string& path, const std::string& text) {
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd || write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return no(path);
  return {};
}

Outcome<void> map_user(unsigned inside_uid, unsigned outside_uid, unsigned inside_gid,
                       unsigned outside_gid) {
  if (auto set = write_file("/proc/self/setgroups", "deny"); !set) return set;
  if (auto set = write_file("/proc/self/uid_map", fmt::format("{} {} 1", inside_uid, outside_uid));
      !set) {
    return set;
  }
  return write_file("/proc/self/gid_map", fmt::format("{} {} 1", inside_gid, outside_gid));
}

Outcome<void> mount_new(const char* type, const char* where) {
  if (mount(type, where, type, MS_NOSUID | MS_NODEV, nullptr) == 0) return {};
  return no(fmt::format("{} of a host", where));
}

// Shows `text` where programs look for the file, if there is such a file.
Outcome<void> show_instead(const std::string& file, const std::string& name,
                           const std::string& text) {
  const std::string own = lab_file(name);
  if (auto written = write_file(own, text); !written) return written;
  if (access(file.c_str(), F_OK) != 0) return {};
  if (mount(own.c_str(), file.c_str(), nullptr, MS_BIND, nullptr) != 0) return no(file);
  return {};
}

// NCCL and UCX take two hosts for one if this is the same.
std::string random_boot_id() {
  std::array<unsigned char, 16> id{};
  static_cast<void>(getrandom(id.data(), id.size(), 0) < 0);
  std::string out;
  for (std::size_t i = 0; i < id.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) out += '-';
    out += fmt::format("{:02x}", id[i]);
  }
  return out + "\n";
}

Outcome<void> set_up_files(unsigned hosts, const std::string& terminal) {
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return no("/ of a host");
  for (const auto& [type, where] : {std::pair("proc", "/proc"), std::pair("tmpfs", "/dev/shm")}) {
    if (auto mounted = mount_new(type, where); !mounted) return mounted;
  }
  // Containers may refuse it: then programs see the machine's own interfaces there.
  static_cast<void>(mount_new("sysfs", "/sys"));
  // A host is a session of its own, which has no terminal: /dev/tty would say ENXIO.
  if (!terminal.empty())
    static_cast<void>(mount(terminal.c_str(), "/dev/tty", nullptr, MS_BIND, nullptr));
  if (mkdir(kLabFolder, 0755) != 0 || mkdir(lab_file("run").c_str(), 0700) != 0)
    return no(kLabFolder);
  // In a lab within this one, an ordinary user may mount /proc only if one of them shows all.
  if (mkdir(lab_file("proc").c_str(), 0555) == 0)
    static_cast<void>(mount_new("proc", lab_file("proc").c_str()));
  std::string names = "127.0.0.1 localhost\n::1 localhost\n";
  for (unsigned rank = 0; rank < hosts; ++rank)
    names += fmt::format("{} {}\n", lab::host_address(rank), lab::host_name(rank));
  if (auto shown = show_instead("/etc/hosts", "hosts", names); !shown) return shown;
  // Nobody answers there; a program that asks should not wait for that.
  if (auto shown = show_instead("/etc/resolv.conf", "resolv.conf", ""); !shown) return shown;
  return show_instead("/proc/sys/kernel/random/boot_id", "boot_id", random_boot_id());
}

ifreq request(const char* name) {
  ifreq out{};
  std::strncpy(out.ifr_name, name, IFNAMSIZ - 1);
  return out;
}

void put_address(sockaddr& where, const std::string& text) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, text.c_str(), &address.sin_addr);
  std::memcpy(&where, &address, sizeof address);
}

Outcome<void> bring_up(int control, const char* name) {
  ifreq ask = request(name);
  if (ioctl(control, SIOCGIFFLAGS, &ask) != 0) return no(name);
  ask.ifr_flags = static_cast<short>(ask.ifr_flags | IFF_UP);
  if (ioctl(control, SIOCSIFFLAGS, &ask) != 0) return no(name);
  return {};
}

// The last byte tells whose it is.
Outcome<void> give_addresses(int control, unsigned rank) {
  ifreq ask = request(kInterface);
  ask.ifr_hwaddr.sa_family = 1;  // ARPHRD_ETHER
  const std::array<unsigned char, 6> mac{0x02, 'w', 'e',
                                         'f',  't', static_cast<unsigned char>(rank + 1)};
  std::memcpy(ask.ifr_hwaddr.sa_data, mac.data(), mac.size());
  if (ioctl(control, SIOCSIFHWADDR, &ask) != 0) return no("the address of eth0");
  ask = request(kInterface);
  put_address(ask.ifr_addr, lab::host_address(rank));
  if (ioctl(control, SIOCSIFADDR, &ask) != 0) return no("the address of eth0");
  ask = request(kInterface);
  put_address(ask.ifr_netmask, "255.255.255.0");
  if (ioctl(control, SIOCSIFNETMASK, &ask) != 0) return no("the network of eth0");
  return {};
}

// As the kernel wants it; its own header does not go with those of the C library everywhere.
struct NewAddress {
  in6_addr address;
  std::uint32_t prefix;
  int interface;
};

// There may be no IPv6 here.
void give_ipv6_address(unsigned rank) {
  const UniqueFd control(socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  NewAddress ask{{}, 64, static_cast<int>(if_nametoindex(kInterface))};
  inet_pton(AF_INET6, fmt::format("fd76::{:x}", rank + 1).c_str(), &ask.address);
  if (control) static_cast<void>(ioctl(control.get(), SIOCSIFADDR, &ask));
}

Outcome<UniqueFd> make_interface(bool large) {
  UniqueFd fd(open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return no("/dev/net/tun, which carries frames between the hosts,");
  ifreq ask = request(kInterface);
  ask.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
  if (ioctl(fd.get(), TUNSETIFF, &ask) != 0) return no("the interface of a host");
  const unsigned offload = TUN_F_CSUM | (large ? TUN_F_TSO4 | TUN_F_TSO6 : 0U);
  if (ioctl(fd.get(), TUNSETOFFLOAD, offload) != 0) return no("the interface of a host");
  return fd;
}

Outcome<void> set_queue(int control, unsigned frames) {
  if (frames == 0) return {};
  ifreq ask = request(kInterface);
  ask.ifr_qlen = static_cast<int>(frames);
  if (ioctl(control, SIOCSIFTXQLEN, &ask) != 0) return no("the queue of eth0");
  return {};
}

Outcome<UniqueFd> set_up_network(unsigned rank, const HostNetwork& network) {
  Outcome<UniqueFd> frames = make_interface(network.large_frames);
  if (!frames) return frames;
  const UniqueFd control(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!control) return no("a socket of a host");
  // Addresses of IPv6 are usable at once, and not after a second.
  static_cast<void>(
      write_file(fmt::format("/proc/sys/net/ipv6/conf/{}/accept_dad", kInterface), "0"));
  static_cast<void>(write_file("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0"));
  static_cast<void>(write_file("/proc/sys/net/ipv4/ping_group_range", "0 2147483647"));
  if (auto done = give_addresses(control.get(), rank); !done) return tl::unexpected(done.error());
  if (auto done = set_queue(control.get(), network.queue); !done)
    return tl::unexpected(done.error());
  for (const char* name : {"lo", kInterface}) {
    if (auto up = bring_up(control.get(), name); !up) return tl::unexpected(up.error());
  }
  give_ipv6_address(rank);
  return frames;
}

}  // namespace

std::string lab_file(const std::string& name) { return std::string(kLabFolder) + "/" + name; }

Outcome<LabUser> enter_lab() {
  const LabUser user{getuid(), getgid(), geteuid() != 0};
  if (!user.in_namespace) return user;
  if (unshare(CLONE_NEWUSER) != 0) {
    return failure(fmt::format(
        "this system lets no ordinary user make hosts (user namespaces: {}); as root, "
        "`sysctl kernel.unprivileged_userns_clone=1` or, on Ubuntu, `sysctl "
        "kernel.apparmor_restrict_unprivileged_userns=0` allows it; --loopback needs no hosts",
        std::strerror(errno)));
  }
  if (auto mapped = map_user(0, user.uid, 0, user.gid); !mapped)
    return tl::unexpected(mapped.error());
  return user;
}

Outcome<int> fork_host() {
  // As fork() does it: no stack, no pointers.
  const long pid = syscall(SYS_clone, kNamespaces | SIGCHLD, 0, 0, 0, 0);
  if (pid >= 0) return static_cast<int>(pid);
  return failure(fmt::format(
      "a host cannot be made (namespaces: {}); in a container, run it with --privileged or "
      "--cap-add SYS_ADMIN; --loopback needs no hosts",
      std::strerror(errno)));
}

// A container may have it at /dev/console alone, and another one below /dev/pts by this number.
std::string controlling_terminal() {
  const UniqueFd terminal(open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC));
  unsigned device = 0;
  if (!terminal || ioctl(terminal.get(), TIOCGDEV, &device) != 0) return {};
  const auto is_it = [device](const std::string& path) {
    struct stat found {};
    return stat(path.c_str(), &found) == 0 && S_ISCHR(found.st_mode) && found.st_rdev == device;
  };
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    std::array<char, 256> path{};
    if (isatty(fd) == 1 && ttyname_r(fd, path.data(), path.size()) == 0 && is_it(path.data()))
      return path.data();
  }
  const std::string pty = fmt::format("/dev/pts/{}", minor(device));
  const std::string console = fmt::format("/dev/char/{}:{}", major(device), minor(device));
  return is_it(pty) ? pty : is_it(console) ? console : "";
}

Outcome<UniqueFd> set_up_host(unsigned rank, unsigned hosts, const HostNetwork& network,
                              const std::string& terminal) {
  const std::string name = lab::host_name(rank);
  if (sethostname(name.data(), name.size()) != 0) return no("the name of a host");
  if (auto done = set_up_files(hosts, terminal); !done) return tl::unexpected(done.error());
  return set_up_network(rank, network);
}

Outcome<void> become_user(const LabUser& user) {
  if (!user.in_namespace) return {};
  if (unshare(CLONE_NEWUSER) != 0) return no("the user of a host");
  return map_user(user.uid, 0, user.gid, 0);
}

}  // namespace weft::cli

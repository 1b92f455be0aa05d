#include "files/server/leases.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "files/protocol/file_attributes.h"

namespace weft::files {

int Leases::open() {
  sigset_t ours;
  sigemptyset(&ours);
  sigaddset(&ours, SIGIO);
  if (const int error = pthread_sigmask(SIG_BLOCK, &ours, nullptr); error != 0) return error;
  signals_ = os::Fd(signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK));
  return signals_ ? 0 : errno;
}

int Leases::take(const OpenFiles::File& file) {
  const int fd = file->get();
  if (!leases_tell(fd)) return EINVAL;
  // Without an owner of its own the kernel might tell one thread alone.
  if (fcntl(fd, F_SETOWN, getpid()) != 0 || fcntl(fd, F_SETLEASE, F_RDLCK) != 0) return errno;
  std::erase_if(files_, [](const auto& one) { return one.expired(); });
  files_.push_back(file);
  return 0;
}

// While the kernel breaks a lease, it tells what is to become of it.
bool Leases::has(const OpenFile& file) { return fcntl(file.get(), F_GETLEASE) == F_RDLCK; }

// Signals of one number are not counted, so each file is looked at.
void Leases::give_back() {
  signalfd_siginfo signal{};
  while (read(signals_.get(), &signal, sizeof signal) == static_cast<ssize_t>(sizeof signal)) {
  }
  std::erase_if(files_, [](const std::weak_ptr<OpenFile>& one) {
    const auto file = one.lock();
    if (file != nullptr && has(*file)) return false;
    if (file != nullptr) static_cast<void>(fcntl(file->get(), F_SETLEASE, F_UNLCK));
    return true;
  });
}

void Leases::give_up(const Tree& tree, const PathName& path) {
  Attributes found;
  if (files_.empty() || tree.stat(path, found) != 0) return;
  std::erase_if(files_, [&](const std::weak_ptr<OpenFile>& one) {
    const auto file = one.lock();
    if (file == nullptr) return true;
    int error = 0;
    if (attributes_of(file->get(), &error).file_id != found.file_id || error != 0) return false;
    static_cast<void>(fcntl(file->get(), F_SETLEASE, F_UNLCK));
    return true;
  });
}

}  // namespace weft::files

#include "io/fork.h"

#include <pthread.h>

#include "os/descriptor_set.h"

namespace weft::io {

namespace {

os::DescriptorSet<kForkFdsMax> g_fds;

const int kRegisterError = pthread_atfork(nullptr, nullptr, [] { g_fds.close_all(); });

}  // namespace

void close_in_child(int fd) noexcept {
  if (kRegisterError == 0) g_fds.add(fd);
}

void forget_in_child(int fd) noexcept { g_fds.remove(fd); }

}  // namespace weft::io

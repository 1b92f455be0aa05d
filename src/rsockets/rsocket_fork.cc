#include "rsockets/rsocket_fork.h"

#include <pthread.h>

#include <atomic>

#include "os/descriptor_set.h"

namespace weft::rsockets {
namespace {

os::DescriptorSet<kNumbersMax> g_programs;
std::atomic<void (*)()> g_renew{nullptr};

}  // namespace

void note_number(int fd) { g_programs.add(fd); }
bool forget_number(int fd) { return g_programs.remove(fd); }

int watch_forks(void (*renew)()) {
  g_renew = renew;
  return pthread_atfork(nullptr, nullptr, [] { g_renew.load()(); });
}

}  // namespace weft::rsockets

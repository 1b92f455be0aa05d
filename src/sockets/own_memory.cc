#include "sockets/own_memory.h"

#include <unistd.h>

#include <atomic>

namespace weft::sockets {
namespace {

std::atomic<pid_t> g_process{0};

}  // namespace

bool borrowing() { return g_process.load(std::memory_order_relaxed) != getpid(); }
int owner_of_memory() { return g_process.load(std::memory_order_relaxed); }
void own_memory() { g_process = getpid(); }

}  // namespace weft::sockets

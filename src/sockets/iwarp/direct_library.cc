#include "sockets/iwarp/direct_library.h"

#include <cassert>

#include <dlfcn.h>

#include "sockets/iwarp/iwarp_table.h"

namespace weft::sockets::iwarp::direct {
namespace {

template <class Function>
void find(void* handle, Library& library, Function& out, const char* name) {
  out = handle == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(handle, name));
  library.whole = library.whole && out != nullptr;
}

// One of the r* functions, with this thread inside.
template <auto kMember>
struct Enter;
template <class Result, class... Arguments, Result (*RealCalls::*kMember)(Arguments...)>
struct Enter<kMember> {
  static Result call(Arguments... arguments) {
    const Inside inside;
    return (library().inner.*kMember)(arguments...);
  }
};

#define WEFT_ENTER(name)        \
  get(l.inner.name, "r" #name); \
  l.calls.name = &Enter<&RealCalls::name>::call

Library load() {
  Library l;
  l.inner = l.calls = real();
  void* handle = dlopen("librdmacm.so.1", RTLD_NOW);
  const auto get = [&](auto& out, const char* name) { find(handle, l, out, name); };
  get(l.adopt, "weft_rsocket_adopt");
  get(l.alias, "weft_rsocket_alias");
  get(l.answer, "weft_rsocket_answer");
  get(l.close, "rclose");
  get(l.poll, "weft_rsocket_poll");
  get(l.fcntl, "rfcntl");
  WEFT_ENTER(connect);
  WEFT_ENTER(shutdown);
  WEFT_ENTER(getsockname);
  WEFT_ENTER(getpeername);
  WEFT_ENTER(setsockopt);
  WEFT_ENTER(getsockopt);
  WEFT_ENTER(recv);
  WEFT_ENTER(recvfrom);
  WEFT_ENTER(recvmsg);
  WEFT_ENTER(send);
  WEFT_ENTER(sendto);
  WEFT_ENTER(sendmsg);
  WEFT_ENTER(read);
  WEFT_ENTER(readv);
  WEFT_ENTER(write);
  WEFT_ENTER(writev);
  return l;
}
#undef WEFT_ENTER

}  // namespace

// Without locks held: the library's own threads come here, too.
const Library& library() {
  static const Library the = load();
  return the;
}

const RealCalls& calls() { return library().calls; }

int poll(pollfd* fds, rsockets::RsSeen* seen, nfds_t count, const timespec* limit,
         const sigset_t* mask) {
  assert(library().whole);  // without all of it there is no socket of kind kDirect
  const Inside inside;
  return library().poll(fds, seen, count, limit, mask);
}

bool copy(int from, int to) {
  assert(library().whole);
  return library().alias(from, to) == 0;
}

int fcntl(int fd, int command, long value) {
  assert(library().whole);
  const Inside inside;
  return library().fcntl(fd, command, value);
}

}  // namespace weft::sockets::iwarp::direct

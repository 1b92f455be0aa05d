#include "sockets/real_calls.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace weft::sockets {
namespace {

template <class Function>
void find(Function& out, const char* name) {
  out = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
  if (out != nullptr) return;
  std::fprintf(stderr, "weft: the C library has no %s(): libweft-sockets.so cannot be used here\n",
               name);
  std::abort();
}

RealCalls find_all() {
  RealCalls c{};
#define WEFT_FIND(name) find(c.name, #name)
  WEFT_FIND(socket);
  WEFT_FIND(socketpair);
  WEFT_FIND(bind);
  WEFT_FIND(listen);
  WEFT_FIND(accept4);
  WEFT_FIND(connect);
  WEFT_FIND(shutdown);
  WEFT_FIND(close);
  WEFT_FIND(getsockname);
  WEFT_FIND(getpeername);
  WEFT_FIND(setsockopt);
  WEFT_FIND(getsockopt);
  WEFT_FIND(recv);
  WEFT_FIND(recvfrom);
  WEFT_FIND(recvmsg);
  WEFT_FIND(send);
  WEFT_FIND(sendto);
  WEFT_FIND(sendmsg);
  WEFT_FIND(read);
  WEFT_FIND(readv);
  WEFT_FIND(write);
  WEFT_FIND(writev);
  WEFT_FIND(splice);
  WEFT_FIND(poll);
  WEFT_FIND(ppoll);
  WEFT_FIND(select);
  WEFT_FIND(pselect);
  WEFT_FIND(epoll_ctl);
  WEFT_FIND(epoll_pwait);
  WEFT_FIND(epoll_pwait2);
  WEFT_FIND(dup);
  WEFT_FIND(dup2);
  WEFT_FIND(dup3);
  WEFT_FIND(close_range);
  WEFT_FIND(closefrom);
  WEFT_FIND(fdopen);
  WEFT_FIND(execve);
  WEFT_FIND(execvp);
  WEFT_FIND(execvpe);
  WEFT_FIND(fexecve);
  WEFT_FIND(syscall);
#undef WEFT_FIND
  find(c.fcntl, "fcntl64");
  find(c.sendfile, "sendfile64");
  find(c.ioctl, "ioctl");
  return c;
}

}  // namespace

void* real_symbol(const char* name) { return dlsym(RTLD_NEXT, name); }

const RealCalls& real() {
  static const RealCalls calls = find_all();
  return calls;
}

}  // namespace weft::sockets

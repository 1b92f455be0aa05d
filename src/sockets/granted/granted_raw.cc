// syscall(2): a number that a program uses so is the kernel's alone from then on. libuv closes so,
// libseccomp filters so.
#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "sockets/granted/granted.h"

#if defined(__x86_64__)

namespace weft::sockets::granted {
namespace {

void note_close_range(unsigned first, unsigned last, unsigned flags) {
  if ((flags & CLOSE_RANGE_CLOEXEC) == 0 && !borrowing()) leave_range(first, last, closes);
}

// The kernel is about to do this for the process as a whole.
void note_process(long number, const long* arguments) {
  switch (number) {
    case SYS_clone: return before_clone(static_cast<unsigned long>(arguments[0]));
    case SYS_clone3:
    case SYS_fork:
    case SYS_vfork: return before_clone(0);
    case SYS_execve:
    case SYS_execveat: return before_exec();
    case SYS_exit_group:
      if (!borrowing()) leave_range(0, ~0U, closes);
      return;
    case SYS_prctl:
      if (arguments[0] == PR_SET_SECCOMP) stop();
      return;
    case SYS_seccomp:
    case SYS_unshare:
    case SYS_setns:
    case SYS_chroot: return stop();
    default: return;
  }
}

void note(long number, const long* arguments) {
  const auto fd = static_cast<int>(arguments[0]);
  switch (number) {
    case SYS_close: return leave_to_close(fd);
    case SYS_close_range:
      return note_close_range(static_cast<unsigned>(arguments[0]),
                              static_cast<unsigned>(arguments[1]),
                              static_cast<unsigned>(arguments[2]));
    case SYS_dup2:
    case SYS_dup3:
      leave_to_kernel(fd, Why::kShared);
      if (arguments[0] != arguments[1]) leave_to_copy(static_cast<int>(arguments[1]));
      return;
    case SYS_splice: leave_to_kernel(static_cast<int>(arguments[2]), Why::kCall); [[fallthrough]];
    case SYS_read:
    case SYS_write:
    case SYS_readv:
    case SYS_writev:
    case SYS_preadv2:
    case SYS_pwritev2:
    case SYS_recvfrom:
    case SYS_sendto:
    case SYS_recvmsg:
    case SYS_sendmsg:
    case SYS_recvmmsg:
    case SYS_sendmmsg:
    case SYS_sendfile:
    case SYS_connect:
    case SYS_shutdown:
    case SYS_setsockopt:
    case SYS_ioctl:
    case SYS_fcntl:
    case SYS_dup: return leave_to_kernel(fd, Why::kCall);
    default: return note_process(number, arguments);
  }
}

}  // namespace
}  // namespace weft::sockets::granted

using namespace weft::sockets;

// The function to go on with.
extern "C" __attribute__((visibility("hidden"), used)) void* weft_sockets_note_call(
    long number, const long* arguments) {
  const int error = errno;
  granted::note(number, arguments);
  errno = error;
  return reinterpret_cast<void*>(real().syscall);
}

// Goes on by a jump, so that a child which shares the stack returns to the program, not here.
extern "C" __attribute__((naked, visibility("default"))) long syscall(long /*number*/, ...) {
  asm volatile(
      "push %r9\n\t push %r8\n\t push %rcx\n\t push %rdx\n\t push %rsi\n\t push %rdi\n\t"
      "sub $8, %rsp\n\t"
      ".cfi_adjust_cfa_offset 56\n\t"
      "lea 16(%rsp), %rsi\n\t"
      "call weft_sockets_note_call\n\t"
      "mov %rax, %r11\n\t"
      "add $8, %rsp\n\t"
      "pop %rdi\n\t pop %rsi\n\t pop %rdx\n\t pop %rcx\n\t pop %r8\n\t pop %r9\n\t"
      ".cfi_adjust_cfa_offset -56\n\t"
      "jmp *%r11");
}

#endif

// Functions of the real library that have no meaning for Weft's device, under their own names.
//
// Driver libraries (libmlx5, libefa, the plug-ins of real devices) and the real librdmacm resolve
// their libibverbs.so.1 to this one, and are linked so that a missing function is fatal at
// start-up. Each of these is a jump through a slot; the first call looks the function up in the
// real library.

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "ibverbs/drivers.h"
#include "ibverbs/real.h"
#include "os/say.h"

// The slot table is read by the assembler code below.
extern "C" {
extern void* weft_trampoline_slots[] __attribute__((visibility("hidden")));
__attribute__((visibility("hidden"), used)) void* weft_trampoline_resolve(std::size_t index);
}

namespace {

constexpr std::string_view kNames[] = {
#define WEFT_TRAMPOLINE(index, name, symvers) #name,
#include "private_symbols.inc"
};

}  // namespace

void* weft_trampoline_slots[std::size(kNames)] = {};

// A program can only get here through a driver of a real device, which needs the real library.
void* weft_trampoline_resolve(std::size_t index) {
  const std::string_view name = kNames[index];
  void* function = weft::ibverbs::private_function(name);
  if (function == nullptr) {
    auto& real = weft::ibverbs::real_ibverbs();
    if (real.load()) function = real.symbol(name.data());
    if (function == nullptr) {
      weft::os::say(
          "weft: %s was called, but %s\n"
          "weft: Weft was built beside a library with %s. Install rdma-core's libibverbs "
          "of that kind, or build Weft again on this machine.\n",
          name.data(),
          real.load() ? (std::string(real.path()) + " does not have it").c_str()
                      : "no real libibverbs.so.1 was found",
          WEFT_PRIVATE_NODE);
      std::abort();
    }
  }
  __atomic_store_n(&weft_trampoline_slots[index], function, __ATOMIC_RELEASE);
  return function;
}

#if defined(__x86_64__)

#define WEFT_TRAMPOLINE(index, name, symvers) \
  asm(".text\n"                               \
      ".p2align 4\n"                          \
      ".globl weft_t_" #name                  \
      "\n"                                    \
      ".type weft_t_" #name                   \
      ",@function\n"                          \
      "weft_t_" #name                         \
      ":\n"                                   \
      ".cfi_startproc\n"                      \
      "endbr64\n"                             \
      "movq weft_trampoline_slots+8*" #index  \
      "(%rip), %r11\n"                        \
      "testq %r11, %r11\n"                    \
      "jz 1f\n"                               \
      "jmp *%r11\n"                           \
      "1: movl $" #index                      \
      ", %r11d\n"                             \
      "jmp weft_trampoline_slow\n"            \
      ".cfi_endproc\n"                        \
      ".size weft_t_" #name ", .-weft_t_" #name "\n" symvers);

// Saves what may carry arguments (rax counts the vector registers of a variadic call), resolves,
// and jumps as if nothing had been.
asm(R"(
.text
.p2align 4
.type weft_trampoline_slow,@function
weft_trampoline_slow:
.cfi_startproc
  pushq %rbp
.cfi_def_cfa_offset 16
.cfi_offset %rbp, -16
  movq %rsp, %rbp
.cfi_def_cfa_register %rbp
  andq $-16, %rsp
  subq $192, %rsp
  movq %rax, 0(%rsp)
  movq %rdi, 8(%rsp)
  movq %rsi, 16(%rsp)
  movq %rdx, 24(%rsp)
  movq %rcx, 32(%rsp)
  movq %r8, 40(%rsp)
  movq %r9, 48(%rsp)
  movaps %xmm0, 64(%rsp)
  movaps %xmm1, 80(%rsp)
  movaps %xmm2, 96(%rsp)
  movaps %xmm3, 112(%rsp)
  movaps %xmm4, 128(%rsp)
  movaps %xmm5, 144(%rsp)
  movaps %xmm6, 160(%rsp)
  movaps %xmm7, 176(%rsp)
  movl %r11d, %edi
  call weft_trampoline_resolve
  movq %rax, %r11
  movq 0(%rsp), %rax
  movq 8(%rsp), %rdi
  movq 16(%rsp), %rsi
  movq 24(%rsp), %rdx
  movq 32(%rsp), %rcx
  movq 40(%rsp), %r8
  movq 48(%rsp), %r9
  movaps 64(%rsp), %xmm0
  movaps 80(%rsp), %xmm1
  movaps 96(%rsp), %xmm2
  movaps 112(%rsp), %xmm3
  movaps 128(%rsp), %xmm4
  movaps 144(%rsp), %xmm5
  movaps 160(%rsp), %xmm6
  movaps 176(%rsp), %xmm7
  leave
.cfi_def_cfa %rsp, 8
  jmp *%r11
.cfi_endproc
.size weft_trampoline_slow, .-weft_trampoline_slow
)");

#elif defined(__aarch64__)

#define WEFT_TRAMPOLINE(index, name, symvers)       \
  asm(".text\n"                                     \
      ".p2align 4\n"                                \
      ".globl weft_t_" #name                        \
      "\n"                                          \
      ".type weft_t_" #name                         \
      ",%function\n"                                \
      "weft_t_" #name                               \
      ":\n"                                         \
      ".cfi_startproc\n"                            \
      "hint #34\n"                                  \
      "adrp x16, weft_trampoline_slots\n"           \
      "add x16, x16, :lo12:weft_trampoline_slots\n" \
      "ldr x16, [x16, #8*" #index                   \
      "]\n"                                         \
      "cbz x16, 1f\n"                               \
      "br x16\n"                                    \
      "1: mov w17, #" #index                        \
      "\n"                                          \
      "b weft_trampoline_slow\n"                    \
      ".cfi_endproc\n"                              \
      ".size weft_t_" #name ", .-weft_t_" #name "\n" symvers);

asm(R"(
.text
.p2align 4
.type weft_trampoline_slow,%function
weft_trampoline_slow:
.cfi_startproc
  stp x29, x30, [sp, #-224]!
.cfi_def_cfa_offset 224
.cfi_offset x29, -224
.cfi_offset x30, -216
  mov x29, sp
  stp x0, x1, [sp, #16]
  stp x2, x3, [sp, #32]
  stp x4, x5, [sp, #48]
  stp x6, x7, [sp, #64]
  str x8, [sp, #80]
  stp q0, q1, [sp, #96]
  stp q2, q3, [sp, #128]
  stp q4, q5, [sp, #160]
  stp q6, q7, [sp, #192]
  mov w0, w17
  bl weft_trampoline_resolve
  mov x16, x0
  ldp x0, x1, [sp, #16]
  ldp x2, x3, [sp, #32]
  ldp x4, x5, [sp, #48]
  ldp x6, x7, [sp, #64]
  ldr x8, [sp, #80]
  ldp q0, q1, [sp, #96]
  ldp q2, q3, [sp, #128]
  ldp q4, q5, [sp, #160]
  ldp q6, q7, [sp, #192]
  ldp x29, x30, [sp], #224
.cfi_restore x29
.cfi_restore x30
.cfi_def_cfa_offset 0
  br x16
.cfi_endproc
.size weft_trampoline_slow, .-weft_trampoline_slow
)");

#else
#error "src/ibverbs/trampolines.cc has no code for this processor"
#endif

#include "private_symbols.inc"

// Data that the real library writes and its drivers read: whether objects may be destroyed after
// their device went away.
asm(".data\n"
    ".globl verbs_allow_disassociate_destroy_\n"
    ".type verbs_allow_disassociate_destroy_,%object\n"
    ".size verbs_allow_disassociate_destroy_,1\n"
    "verbs_allow_disassociate_destroy_:\n"
    ".byte 0\n" WEFT_DATA_SYMVERS ".text\n");

// Memory that one-sided work fills, on a device that grants or refuses its registration.
#include <dlfcn.h>
#include <infiniband/verbs.h>

#include <atomic>

#include "exs_support.h"

namespace {
std::atomic<bool> g_refused{false};
}  // namespace

// In place of libibverbs', for this program and libexs.
extern "C" __attribute__((visibility("default"))) ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr,
                                                                           size_t length,
                                                                           std::uint64_t iova,
                                                                           unsigned access) {
  if (g_refused) {
    errno = ENOMEM;
    return nullptr;
  }
  using Register = ibv_mr* (*)(ibv_pd*, void*, size_t, std::uint64_t, unsigned);
  static const auto real = reinterpret_cast<Register>(dlsym(RTLD_NEXT, "ibv_reg_mr_iova2"));
  return real(pd, addr, length, iova, access);
}

namespace weft::exs_test {
namespace {

// It is an error of the operation, in its turn, and of nothing else.
TEST(Sink, MemoryThatCannotBeRegisteredEndsTheOperationAlone) {
  Pair pair(kPacket);
  Buffer there(64, 1);
  exs_mname_t name;
  ASSERT_EQ(exs_mexport(pair.right, there.mh, there.data(), there.size(), EXS_MEXPORT_READ, &name),
            0);
  const exs_rhandle_t remote = exs_mimport(pair.left, &name);
  ASSERT_GE(remote, 0);
  std::uint8_t here[64] = {};
  g_refused = true;
  EXPECT_ERRNO(exs_read(pair.left, here, sizeof here, remote, 0, kBlock, 0, kPlain), ENOMEM);
  ASSERT_EQ(exs_read(pair.left, here, sizeof here, remote, 0, pair.left_q, tag(1), kPlain), 0);
  ASSERT_EQ(exs_read(pair.left, here, sizeof here, remote, 0, pair.left_q, tag(2), kPlain), 0);
  for (int i = 1; i <= 2; ++i) {
    const exs_event_t event = next_event(pair.left_q);
    EXPECT_EQ(event.ahandle, tag(i));
    EXPECT_EQ(event.error, ENOMEM);
  }
  g_refused = false;
  EXPECT_EQ(exs_read(pair.left, here, sizeof here, remote, 0, kBlock, 0, kPlain), 64);
  EXPECT_EQ(std::memcmp(here, there.data(), sizeof here), 0);
  EXPECT_EQ(exs_munexport(pair.right, &name), 0);
}

}  // namespace
}  // namespace weft::exs_test

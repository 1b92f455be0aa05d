// A device without inline data, as some have none: each message needs a buffer to be sent from.
#include <dlfcn.h>
#include <rdma/rdma_cma.h>

#include <random>

#include "mover.h"

// In place of librdmacm's, for this program and libexs.
extern "C" __attribute__((visibility("default"))) int rdma_create_qp(rdma_cm_id* id, ibv_pd* pd,
                                                                     ibv_qp_init_attr* attr) {
  if (attr->cap.max_inline_data != 0) {
    errno = EINVAL;
    return -1;
  }
  using Create = int (*)(rdma_cm_id*, ibv_pd*, ibv_qp_init_attr*);
  static const auto real = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "rdma_create_qp"));
  const int made = real(id, pd, attr);
  attr->cap.max_inline_data = 0;
  return made;
}

namespace weft::exs_test {
namespace {

class NoInline : public testing::TestWithParam<Way> {};

// The end with few buffers has them all under way while the peer's credits allow more.
TEST_P(NoInline, CreditsWaitForABuffer) {
  const std::uint64_t number = seed();
  SCOPED_TRACE("WEFT_SEED=" + std::to_string(number));
  std::mt19937_64 random(number);
  const Listener listener(GetParam(), {{EXS_F_SETCREDITS, 256}});
  for (int round = 0; round < 8 && !HasFailure(); ++round) {
    Pair pair(GetParam(), listener, 0, {{EXS_F_SETCREDITS, 8}});
    Mover mover(pair, random, bytes_to_move(4));
    mover.run();
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, NoInline, testing::Values(kStream, kPacket),
                         [](const auto& one) { return name_of(one.param); });

}  // namespace
}  // namespace weft::exs_test

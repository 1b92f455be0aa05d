#include "like/known.h"

#include <algorithm>
#include <array>
#include <utility>

namespace weft::like {

namespace {

constexpr std::string_view kSiw = R"(kernel = 6.1.0-56-amd64, rdma-core 44.0
device = siw0
firmware = 0.0.0
vendor = 0x626d74 part 0x2
driver = siw
source = measured by weft-probe
date = 2026-11-28
max_mr_size = 18446744073709551615
max_qp = 102400
max_qp_wr = 32768
device_cap_flags = 0x200000
max_sge = 6
max_sge_rd = 1
max_cq = 102400
max_cqe = 3276800
max_mr = 1024000
max_mw = 0
max_pd = 102400
max_qp_rd_atom = 128
max_qp_init_rd_atom = 128
max_res_rd_atom = 13107200
atomic_cap = NONE
max_ah = 0
max_srq = 102400
max_srq_wr = 327680
max_srq_sge = 6
port.max_mtu = 1024
port.active_mtu = 1024
port.gid_tbl_len = 1
port.max_msg_sz = 4294967295
qp.RC = ok
qp.UC = EOPNOTSUPP
qp.UD = EOPNOTSUPP
qp.builder = EOPNOTSUPP
qp.send_wr_granted = as_asked
qp.recv_wr_granted = as_asked
qp.inline_of_none = 0
qp.max_inline = 80
qp.inline_beyond = EINVAL
qp.send_wr_beyond = EINVAL
qp.recv_wr_beyond = EINVAL
qp.send_sge_beyond = EINVAL
qp.recv_sge_beyond = EINVAL
cq.cqe_granted = power_of_two
cq.cqe_beyond = EINVAL
cq.resize = EOPNOTSUPP
cq.extended = EOPNOTSUPP
srq.create = ok
srq.wr_granted = as_asked
srq.wr_beyond = EINVAL
srq.sge_beyond = EINVAL
srq.resize = EOPNOTSUPP
srq.limit = ok
mr.LOCAL_WRITE = ok
mr.REMOTE_WRITE = ok
mr.REMOTE_READ = ok
mr.REMOTE_ATOMIC = ok
mr.MW_BIND = ok
mr.ZERO_BASED = ok
mr.ON_DEMAND = EINVAL
mr.RELAXED_ORDERING = ok
mr.no_octets = EINVAL
mr.rereg = EOPNOTSUPP
mw.TYPE_1 = EOPNOTSUPP
mw.TYPE_2 = EOPNOTSUPP
dm.alloc = EOPNOTSUPP
post.SEND = ok
post.SEND_WITH_IMM = EINVAL
post.SEND_WITH_IMM_only = EINVAL
post.SEND_WITH_INV = ok
post.RDMA_WRITE = ok
post.RDMA_WRITE_WITH_IMM = EINVAL
post.RDMA_READ = ok
post.ATOMIC_CMP_AND_SWP = EINVAL
post.ATOMIC_FETCH_AND_ADD = EINVAL
post.LOCAL_INV = EINVAL
# post.read_sge_beyond is taken and completes, but not all SGEs are filled
)";

constexpr std::string_view kRxe = R"(kernel = 6.1.0-56-amd64, rdma-core 44.0
device = rxe0
firmware = 0.0.0
vendor = 0xffffff part 0x0
driver = rxe
source = measured by weft-probe
date = 2026-11-28
max_mr_size = 18446744073709551615
max_qp = 1048560
max_qp_wr = 1048576
device_cap_flags = 0x1223c76
max_sge = 32
max_sge_rd = 32
max_cq = 1048576
max_cqe = 32767
max_mr = 524287
max_mw = 524287
max_pd = 1048576
max_qp_rd_atom = 128
max_qp_init_rd_atom = 128
max_res_rd_atom = 258048
atomic_cap = HCA
max_ah = 32767
max_srq = 917503
max_srq_wr = 1048576
max_srq_sge = 27
port.max_mtu = 4096
port.active_mtu = 1024
port.gid_tbl_len = 1024
port.max_msg_sz = 8388608
qp.RC = ok
qp.UC = ok
qp.UD = ok
qp.builder = ok
qp.send_wr_granted = as_asked
qp.recv_wr_granted = as_asked
qp.inline_of_none = 16
qp.max_inline = 512
qp.inline_beyond = EINVAL
qp.send_wr_beyond = EINVAL
qp.recv_wr_beyond = EINVAL
qp.send_sge_beyond = EINVAL
qp.recv_sge_beyond = EINVAL
cq.cqe_granted = power_of_two_less_one
cq.cqe_beyond = EINVAL
cq.resize = ok
cq.extended = ok
srq.create = ok
srq.wr_granted = as_asked
srq.wr_beyond = EINVAL
srq.sge_beyond = EINVAL
srq.resize = ok
srq.limit = ok
mr.LOCAL_WRITE = ok
mr.REMOTE_WRITE = ok
mr.REMOTE_READ = ok
mr.REMOTE_ATOMIC = ok
mr.MW_BIND = ok
mr.ZERO_BASED = ok
mr.ON_DEMAND = EINVAL
mr.RELAXED_ORDERING = ok
mr.no_octets = EINVAL
mr.rereg = EOPNOTSUPP
mw.TYPE_1 = ok
mw.TYPE_2 = ok
dm.alloc = EOPNOTSUPP
post.SEND = ok
post.SEND_WITH_IMM = ok
post.SEND_WITH_IMM_only = ok
post.SEND_WITH_INV = ok
post.RDMA_WRITE = ok
post.RDMA_WRITE_WITH_IMM = ok
post.RDMA_READ = ok
post.ATOMIC_CMP_AND_SWP = ok
post.ATOMIC_FETCH_AND_ADD = ok
post.LOCAL_INV = ok
post.BIND_MW = ok
)";

// Shown by others of their adapters (`ibv_devinfo -v`), which tells no refusals.
constexpr std::string_view kConnectX5 = R"(device = mlx5 (ConnectX-5)
firmware = 16.23.1020
vendor = 0x2c9 part 0x1017
driver = mlx5
source = reported, https://github.com/open-mpi/ompi/pull/6137
max_mr_size = 18446744073709551615
max_qp = 262144
max_qp_wr = 32768
device_cap_flags = 0xe5721c36
max_sge = 30
max_sge_rd = 30
max_cq = 16777216
max_cqe = 4194303
max_mr = 16777216
max_pd = 16777216
max_qp_rd_atom = 16
max_res_rd_atom = 4194304
max_qp_init_rd_atom = 16
atomic_cap = HCA
)";

constexpr std::string_view kConnectX3 = R"(device = mlx4 (ConnectX-3)
firmware = 2.33.5100
vendor = 0x2c9 part 0x1003
driver = mlx4
source = reported, https://github.com/claudebarthels/infinity/issues/5
max_mr_size = 18446744073709551615
max_qp = 131000
max_qp_wr = 16351
device_cap_flags = 0x57e9c66
max_sge = 32
max_sge_rd = 30
max_cq = 65408
max_cqe = 4194303
max_mr = 524032
max_mw = 0
max_pd = 32764
max_qp_rd_atom = 16
max_res_rd_atom = 2096000
max_qp_init_rd_atom = 128
atomic_cap = HCA
max_ah = 2147483647
max_srq = 65472
max_srq_wr = 16383
max_srq_sge = 31
)";

constexpr std::string_view kE810 = R"(device = irdma (E810)
firmware = 1.74
vendor = 0x8086 part 0x1592
driver = irdma
source = reported, https://github.com/deepseek-ai/3FS/issues/192
max_mr_size = 35184372088832
max_qp = 4092
max_qp_wr = 8127
device_cap_flags = 0x1221000
max_sge = 6
max_sge_rd = 6
max_cq = 8189
max_cqe = 1048574
max_mr = 4194301
max_mw = 0
max_pd = 262141
max_qp_rd_atom = 8
max_res_rd_atom = 0
max_qp_init_rd_atom = 8
atomic_cap = NONE
max_ah = 131072
max_srq = 0
)";

constexpr std::string_view kQedr = R"(device = qedr
firmware = 8.37.7.0
vendor = 0x1077 part 0x8070
driver = qedr
source = reported, https://github.com/openucx/ucx/issues/5148
max_mr_size = 1099511627776
max_qp = 8568
max_qp_wr = 32767
device_cap_flags = 0x209080
max_sge = 4
max_sge_rd = 4
max_cq = 17136
max_cqe = 8388480
max_mr = 131070
max_pd = 65536
max_qp_rd_atom = 32
max_res_rd_atom = 0
max_qp_init_rd_atom = 32
)";

constexpr std::array kKnown = {
    Known{"siw", "Linux' iWARP in software, measured", kSiw},
    Known{"rxe", "Linux' RoCE in software, measured (with --personality roce)", kRxe},
    Known{"connectx-5", "ConnectX-5, RoCE, reported", kConnectX5},
    Known{"connectx-3", "ConnectX-3, InfiniBand, reported", kConnectX3},
    Known{"e810", "Intel E810, RoCE, reported", kE810},
    Known{"qedr", "Marvell FastLinQ, reported", kQedr},
};

std::string names() {
  std::string out;
  for (const Known& one : kKnown) out += (out.empty() ? "" : ", ") + std::string(one.name);
  return out;
}

tl::expected<Profile, std::string> device_of(const std::string& name, const ReadFile& read) {
  const auto* const known =
      std::ranges::find_if(kKnown, [&](const Known& one) { return one.name == name; });
  if (known != kKnown.end()) return parse(known->text);
  const auto text = read(name);
  if (!text) {
    return tl::unexpected(name + ": " + text.error() + ", and it is no device that is known (" +
                          names() + ")");
  }
  auto profile = parse(*text);
  if (!profile) return tl::unexpected(name + ": " + profile.error());
  return profile;
}

}  // namespace

std::span<const Known> known_devices() { return kKnown; }

tl::expected<Profile, std::string> profile_of(std::string_view wish, const ReadFile& read) {
  Profile out;
  for (bool first = true; !wish.empty(); first = false) {
    const std::size_t comma = std::min(wish.find(','), wish.size());
    const std::string_view word = wish.substr(0, comma);
    wish.remove_prefix(std::min(comma + 1, wish.size()));
    const std::size_t equals = word.find('=');
    if (equals != std::string_view::npos) {
      if (auto done = out.set(word.substr(0, equals), word.substr(equals + 1)); !done)
        return tl::unexpected(done.error());
    } else if (first) {
      auto device = device_of(std::string(word), read);
      if (!device) return device;
      out = std::move(*device);
    } else {
      return tl::unexpected("'" + std::string(word) + "': write KEY=VALUE behind the device");
    }
  }
  return out;
}

}  // namespace weft::like

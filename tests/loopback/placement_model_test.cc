// Every kind of target at both ends of Writes, Reads and Sends, with random geometry and ranges. A
// naive model, octet by octet, says what each end holds then; what lies outside is compared too.
#include <weft/device_memory.h>
#include <weft/placement.h>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <random>

#include "support/weft_side.h"

namespace weft::test {
namespace {

using Octets = std::vector<std::uint8_t>;
constexpr std::size_t kGuard = 64;
constexpr Access kAll = Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteRead;

class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : random_(seed) {}
  std::size_t upto(std::size_t most) { return random_() % (most + 1); }
  std::size_t within(std::size_t least, std::size_t most) { return least + upto(most - least); }
  std::int64_t around(std::size_t most) {
    return static_cast<std::int64_t>(upto(2 * most)) - static_cast<std::int64_t>(most);
  }
  Octets octets(std::size_t count) {
    Octets out(count);
    for (auto& octet : out) octet = static_cast<std::uint8_t>(random_());
    return out;
  }

 private:
  std::mt19937_64 random_;
};

// One end of an operation: a region, the octets behind it, and what the model says of them.
class End {
 public:
  virtual ~End() = default;
  // All the octets, with those around the range.
  [[nodiscard]] virtual Octets real() = 0;
  // Where an offset of the range lies among them, if anywhere.
  [[nodiscard]] virtual std::optional<std::size_t> where(std::size_t offset) const = 0;
  // Before an operation, and behind it when all that was placed is to be seen.
  virtual void shuffle(Numbers&) {}
  virtual void settle() {}

  [[nodiscard]] std::size_t length() const { return region->length(); }
  [[nodiscard]] std::uint64_t to(std::size_t at) const { return region->iova() + at; }
  [[nodiscard]] std::uint8_t model_of(std::size_t offset) const {
    const auto at = where(offset);
    return at ? model[*at] : 0;
  }
  void model_takes(std::size_t offset, std::uint8_t octet) {
    if (const auto at = where(offset)) model[*at] = octet;
  }

  std::shared_ptr<MemoryRegion> region;
  Octets model;
};

// The range is all but the guards.
class Flat : public End {
 public:
  [[nodiscard]] std::optional<std::size_t> where(std::size_t offset) const override {
    return kGuard + offset;
  }
};

class MemoryEnd final : public Flat {
 public:
  MemoryEnd(Host& host, Numbers& n, std::size_t length) : octets_(n.octets(length + 2 * kGuard)) {
    region = must(host.pd->register_memory(octets_.data() + kGuard, length, kAll), "memory");
    model = octets_;
  }
  Octets real() override { return octets_; }

 private:
  Octets octets_;
};

class DeviceMemoryEnd final : public Flat {
 public:
  DeviceMemoryEnd(Host& host, Numbers& n, std::size_t length) {
    DeviceMemoryOptions options;
    options.bytes = 4U << 20U;
    owner_ = must(DeviceMemoryHeap::create(options), "heap")->add_owner();
    model = n.octets(length + 2 * kGuard);
    segment_ = must(owner_->allocate(model.size()), "segment");
    must(owner_->copy_to(segment_, 0, model), "fill");
    region =
        must(owner_->register_memory(*host.pd, segment_, kGuard, length, kAll), "device memory");
  }
  Octets real() override {
    Octets out(model.size());
    must(owner_->copy_from(segment_, 0, out), "copy");
    return out;
  }

 private:
  std::shared_ptr<DeviceMemoryOwner> owner_;
  DeviceMemoryHandle segment_{};
};

// Rows of an image on a surface of another size; as a layout, of the same.
class WindowEnd final : public End {
 public:
  WindowEnd(Host& host, Numbers& n, bool layout) : moves_(!layout) {
    surface_.row_bytes = n.within(1, 900);
    surface_.rows = n.within(1, 200);
    surface_.pitch = surface_.row_bytes + n.upto(40);
    row_bytes_ = layout ? surface_.row_bytes : n.within(1, 900);
    const std::size_t rows = layout ? surface_.rows : n.within(1, 200);
    octets_ = n.octets(surface_.pitch * surface_.rows + 2 * kGuard);
    surface_.first = octets_.data() + kGuard;
    model = octets_;
    target_ = layout ? must(WindowTarget::layout(surface_), "layout")
                     : must(WindowTarget::create(row_bytes_, rows, surface_), "window");
    region = must(register_target(*host.pd, target_, target_->length(), n.upto(1U << 30U), kAll),
                  "register");
  }
  Octets real() override { return octets_; }
  void shuffle(Numbers& n) override {
    if (!moves_ || n.upto(1) == 0) return;
    view_.x = n.around(600);
    view_.y = n.around(150);
    view_.clip_x = n.upto(300);
    view_.clip_y = n.upto(60);
    view_.clip_width = n.upto(900);
    view_.clip_rows = n.upto(200);
    must(target_->set_view(view_), "view");
  }
  [[nodiscard]] std::optional<std::size_t> where(std::size_t offset) const override {
    const std::int64_t x = view_.x + static_cast<std::int64_t>(offset % row_bytes_);
    const std::int64_t y = view_.y + static_cast<std::int64_t>(offset / row_bytes_);
    if (x < 0 || y < 0) return {};
    const auto column = static_cast<std::size_t>(x);
    const auto row = static_cast<std::size_t>(y);
    const bool on_surface = column < surface_.row_bytes && row < surface_.rows;
    const bool in_clip = column >= view_.clip_x && column - view_.clip_x < view_.clip_width &&
                         row >= view_.clip_y && row - view_.clip_y < view_.clip_rows;
    if (!on_surface || !in_clip) return {};
    return kGuard + row * surface_.pitch + column;
  }

 private:
  const bool moves_;
  std::size_t row_bytes_ = 0;
  Surface surface_;
  Octets octets_;
  WindowView view_;
  std::shared_ptr<WindowTarget> target_;
};

class FileEnd final : public Flat {
 public:
  FileEnd(Host& host, Numbers& n, std::size_t length) {
    model = n.octets(length + 2 * kGuard);
    EXPECT_EQ(pwrite(fd_, model.data(), model.size(), 0), static_cast<ssize_t>(model.size()));
    target_ = must(FileTarget::create(fd_, kGuard, n.within(2, 4)), "file");
    region = must(register_target(*host.pd, target_, length, n.upto(99), kAll), "register");
  }
  ~FileEnd() override { close(fd_); }
  FileEnd(const FileEnd&) = delete;
  FileEnd& operator=(const FileEnd&) = delete;
  Octets real() override {
    Octets out(static_cast<std::size_t>(lseek(fd_, 0, SEEK_END)));
    EXPECT_EQ(pread(fd_, out.data(), out.size(), 0), static_cast<ssize_t>(out.size()));
    return out;
  }
  void settle() override { EXPECT_EQ(target_->flush(), 0); }

 private:
  const int fd_ = memfd_create("weft-test", MFD_CLOEXEC);
  std::shared_ptr<FileTarget> target_;
};

// A function of the owner, which is not always ready.
class Callback final : public PlacementTarget {
 public:
  Callback(Octets octets, Numbers& n)
      : all(std::move(octets)), slowness_(n.upto(2)), n_(n.upto(1U << 30U)) {}
  [[nodiscard]] bool gives() const noexcept override { return true; }
  Placed place(std::uint64_t offset, std::span<const std::uint8_t> octets) noexcept override {
    if (n_.upto(slowness_) != 0) return Placed::kLater;
    std::ranges::copy(octets, all.begin() + static_cast<std::ptrdiff_t>(kGuard + offset));
    return Placed::kTaken;
  }
  Placed fetch(std::uint64_t offset, std::span<std::uint8_t> octets) noexcept override {
    if (n_.upto(slowness_) != 0) return Placed::kLater;
    std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(kGuard + offset), octets.size(),
                octets.begin());
    return Placed::kTaken;
  }
  Octets all;

 private:
  const std::size_t slowness_;
  Numbers n_;  // never used twice at a time: one request is under way at once
};

class CallbackEnd final : public Flat {
 public:
  CallbackEnd(Host& host, Numbers& n, std::size_t length) {
    target_ = std::make_shared<Callback>(n.octets(length + 2 * kGuard), n);
    model = target_->all;
    region = must(register_target(*host.pd, target_, length, n.upto(1U << 30U), kAll), "register");
  }
  Octets real() override { return target_->all; }

 private:
  std::shared_ptr<Callback> target_;
};

// One of each kind.
std::vector<std::unique_ptr<End>> ends(Host& host, Numbers& n) {
  const auto length = [&n] { return n.within(1, n.upto(2) == 0 ? 300'000 : 5000); };
  std::vector<std::unique_ptr<End>> out;
  out.push_back(std::make_unique<MemoryEnd>(host, n, length()));
  out.push_back(std::make_unique<DeviceMemoryEnd>(host, n, length()));
  out.push_back(std::make_unique<WindowEnd>(host, n, true));
  out.push_back(std::make_unique<WindowEnd>(host, n, false));
  out.push_back(std::make_unique<FileEnd>(host, n, length()));
  out.push_back(std::make_unique<CallbackEnd>(host, n, length()));
  return out;
}

// Part of a range, as an SGE names it.
struct Piece {
  End* end = nullptr;
  std::size_t at = 0, count = 0;
  [[nodiscard]] Sge sge() const {
    return {.addr = end->to(at),
            .length = static_cast<std::uint32_t>(count),
            .lkey = end->region->lkey()};
  }
};

class World : public Pair {
 public:
  World(const Config& config, std::uint64_t seed)
      : Pair(config), n_(seed), sources_(ends(host, n_)), sinks_(ends(host, n_)) {}

  void step() {
    for (auto& end : sources_) end->shuffle(n_);
    for (auto& end : sinks_) end->shuffle(n_);
    switch (n_.upto(2)) {
      case 0: write(); break;
      case 1: read(); break;
      default: send(); break;
    }
    for (auto& end : sinks_) end->settle();
  }
  void check() {
    for (std::size_t kind = 0; kind < sinks_.size(); ++kind) {
      ASSERT_EQ(sinks_[kind]->real(), sinks_[kind]->model) << "sink of kind " << kind;
      ASSERT_EQ(sources_[kind]->real(), sources_[kind]->model) << "source of kind " << kind;
    }
  }

 private:
  using Ends = std::vector<std::unique_ptr<End>>;

  // Up to `pieces` of them, no more than `most` octets together.
  std::vector<Piece> pick(const Ends& from, std::size_t pieces, std::size_t most) {
    std::vector<Piece> out;
    for (std::size_t left = n_.within(1, pieces); left != 0 && most != 0; --left) {
      Piece p;
      p.end = from[n_.upto(from.size() - 1)].get();
      p.at = n_.upto(p.end->length() - 1);
      p.count = n_.within(1, std::min(p.end->length() - p.at, most));
      most -= p.count;
      out.push_back(p);
    }
    return out;
  }
  static std::size_t total(const std::vector<Piece>& pieces) {
    std::size_t sum = 0;
    for (const Piece& p : pieces) sum += p.count;
    return sum;
  }
  // Other pieces with room for `bytes` or more; the rest of them is to stay as it is.
  std::vector<Piece> room_for(const Ends& in, std::size_t bytes) {
    std::vector<Piece> out;
    while (total(out) < bytes && out.size() < 7) {
      for (const Piece& p : pick(in, 1, bytes + 1000)) out.push_back(p);
    }
    return out;
  }
  static void model_moves(const std::vector<Piece>& from, const std::vector<Piece>& to) {
    Octets octets;
    for (const Piece& p : from) {
      for (std::size_t i = 0; i < p.count; ++i) octets.push_back(p.end->model_of(p.at + i));
    }
    std::size_t next = 0;
    for (const Piece& p : to) {
      for (std::size_t i = 0; i < p.count && next < octets.size(); ++i) {
        p.end->model_takes(p.at + i, octets[next++]);
      }
    }
  }
  static std::vector<Sge> list(const std::vector<Piece>& pieces) {
    std::vector<Sge> out;
    for (const Piece& p : pieces) out.push_back(p.sge());
    return out;
  }
  void post_and_take(SendWr wr, const std::vector<Sge>& sges) {
    wr.sges = sges;
    ASSERT_TRUE(a.qp->post_send(wr));
    take_success(*a.send_cq, wr.wr_id);
  }

  void write() {
    const Piece to = pick(sinks_, 1, ~std::size_t{0}).front();
    const auto from = pick(sources_, 4, to.count);
    post_and_take(wr_write(1, to.end->region->rkey(), to.end->to(to.at)), list(from));
    // The Read behind it is answered when the Write has been taken.
    post_and_take(wr_read(2, probe_.rkey(), probe_.to()), {probe_.sge()});
    model_moves(from, {to});
  }
  void read() {
    const Piece from = pick(sources_, 1, ~std::size_t{0}).front();
    const auto to = pick(sinks_, 4, from.count);
    post_and_take(wr_read(3, from.end->region->rkey(), from.end->to(from.at)), list(to));
    model_moves({{from.end, from.at, total(to)}}, to);
  }
  void send() {
    auto from = pick(sources_, 4, 50'000);
    const auto to = room_for(sinks_, total(from));
    for (std::size_t room = total(to); total(from) > room;) {
      from.back().count -= std::min(from.back().count, total(from) - room);
      if (from.back().count == 0) from.pop_back();
    }
    const auto sges = list(to);
    RecvWr wr;
    wr.wr_id = 4;
    wr.sges = sges;
    ASSERT_TRUE(b.qp->post_recv(wr));
    post_and_take(wr_send(5), list(from));
    EXPECT_EQ(take_success(*b.recv_cq, 4).byte_len, total(from));
    model_moves(from, to);
  }

  Numbers n_;
  Ends sources_, sinks_;
  Memory probe_{host, 8};
};

TEST(PlacementModel, AllKindsHoldWhatTheModelHolds) {
  const char* text = std::getenv("WEFT_SEED");
  std::uint64_t seed = text != nullptr ? std::strtoull(text, nullptr, 0) : std::random_device{}();
  for (const Config& config : framings()) {
    for (int world = 0; world < 3; ++world, ++seed) {
      SCOPED_TRACE("WEFT_SEED=" + std::to_string(seed));
      World w(config, seed);
      for (int i = 0; i < 60; ++i) {
        SCOPED_TRACE("step " + std::to_string(i));
        ASSERT_NO_FATAL_FAILURE(w.step());
        ASSERT_NO_FATAL_FAILURE(w.check());
      }
    }
  }
}

}  // namespace
}  // namespace weft::test

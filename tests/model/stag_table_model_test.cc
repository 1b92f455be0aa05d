// The STag table against a naive oracle, and under concurrent readers.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "../sim/rng.h"
#include "../sim/seeds.h"
#include "proto/stag_table.h"

namespace weft::proto {
namespace {

using weft::testing::for_each_seed;
using weft::testing::Rng;

constexpr std::size_t kMemory = 4096;  // all that regions of the model lie in

Rng* g_random = nullptr;
std::uint32_t random_bits() { return static_cast<std::uint32_t>(g_random->next()); }

// What the table should know: one entry for each slot in use, by the index of its STag.
struct Known {
  std::uint8_t key = 0;
  bool valid = false;
  bool is_window = false;
  MemorySpec spec;
  std::uint32_t region = 0;  // index; of a bound window
};

class Oracle {
 public:
  [[nodiscard]] MemoryFault resolve(Stag stag, std::uint64_t to, std::uint64_t length, Access need,
                                    StreamId who, std::uint8_t*& at) const {
    const auto it = known.find(stag.index());
    if (it == known.end() || !it->second.valid || it->second.key != stag.key()) {
      return MemoryFault::kInvalidStag;
    }
    const MemorySpec& s = it->second.spec;
    if (s.pd != who.pd) return MemoryFault::kNotOfStream;
    if (s.stream != 0 && s.stream != who.stream) return MemoryFault::kNotOfStream;
    const auto wanted = static_cast<unsigned>(need);
    if ((static_cast<unsigned>(s.access) & wanted) != wanted) return MemoryFault::kNoRight;
    const std::uint64_t end = to + length;
    if (end < to && end != 0) return MemoryFault::kWrap;  // 0: right up to the end of all offsets
    if (to < s.base || length > kMemory || to - s.base > kMemory) return MemoryFault::kBounds;
    if (to - s.base + length > s.length) return MemoryFault::kBounds;
    at = s.addr + (to - s.base);
    return MemoryFault::kNone;
  }
  [[nodiscard]] int windows_of(std::uint32_t index) const {
    int count = 0;
    for (const auto& [i, k] : known) {
      count += k.is_window && k.valid && k.region == index ? 1 : 0;
    }
    return count;
  }

  std::map<std::uint32_t, Known> known;
};

class StagTableModel {
 public:
  explicit StagTableModel(std::uint64_t seed)
      : rng_(seed), random_(seed ^ 0x1234), memory_(kMemory) {
    g_random = &random_;
    max_ = rng_.u32(1, 700);
    table_ = std::make_unique<StagTable>(seed, random_bits, max_);
  }

  void step() {
    switch (rng_.u32(0, 9)) {
      case 0:
      case 1: add(); break;
      case 2: allocate(); break;
      case 3: bind(); break;
      case 4: invalidate(); break;
      case 5: remove(); break;
      default: resolve(); break;
    }
    ASSERT_EQ(table_->used(), oracle_.known.size());
  }

 private:
  [[nodiscard]] Access some_access() {
    return static_cast<Access>(rng_.u32(0, 31));  // all but kZeroBased
  }
  [[nodiscard]] MemorySpec some_spec() {
    MemorySpec s;
    const std::size_t at = rng_.size(0, 4000);
    s.addr = memory_.data() + at;
    s.length = rng_.size(0, kMemory - at);
    switch (rng_.u32(0, 3)) {
      case 0: s.base = 0; break;
      case 1: s.base = std::uint64_t{0} - s.length; break;  // up to the end of all offsets
      default: s.base = rng_.next() >> 1U; break;
    }
    s.access = some_access();
    s.pd = rng_.u32(1, 2);
    s.stream = rng_.one_in(3) ? rng_.u32(1, 2) : 0;
    return s;
  }
  // Mostly one the table has given out; now and then with another key, or nonsense.
  [[nodiscard]] Stag some_stag() {
    if (given_.empty() || rng_.one_in(20)) return Stag{static_cast<std::uint32_t>(rng_.next())};
    const Stag stag = given_[rng_.size(0, given_.size() - 1)];
    return rng_.one_in(10) ? Stag{stag.value ^ (1U << rng_.u32(0, 7))} : stag;
  }
  [[nodiscard]] Known* current(Stag stag) {
    const auto it = oracle_.known.find(stag.index());
    return it == oracle_.known.end() || it->second.key != stag.key() ? nullptr : &it->second;
  }
  void learn(Stag stag, const Known& k) {
    ASSERT_FALSE(oracle_.known.contains(stag.index())) << "index given twice";
    ASSERT_NE(stag.value, 0U);
    const auto last = last_key_.find(stag.index());
    ASSERT_FALSE(last != last_key_.end() && last->second == stag.key()) << "same STag again";
    oracle_.known[stag.index()] = k;
    given_.push_back(stag);
  }

  void add() {
    const MemorySpec spec = some_spec();
    const auto stag = table_->add(spec);
    if (oracle_.known.size() == max_) {
      ASSERT_EQ(stag.error(), Error::kLimitExceeded);
      return;
    }
    ASSERT_TRUE(stag.has_value());
    learn(*stag, {stag->key(), true, false, spec, 0});
  }

  void allocate() {
    const std::uint32_t pd = rng_.u32(1, 2);
    const auto stag = table_->allocate_window(pd);
    if (oracle_.known.size() == max_) {
      ASSERT_EQ(stag.error(), Error::kLimitExceeded);
      return;
    }
    ASSERT_TRUE(stag.has_value());
    Known k{stag->key(), false, true, {}, 0};
    k.spec.pd = pd;
    learn(*stag, k);
  }

  void bind() {
    const Stag stag = Stag::of(some_stag().index(), rng_.octet());
    const Stag region = some_stag();
    MemorySpec spec = some_spec();
    if (rng_.one_in(4)) spec.access = spec.access | Access::kZeroBased;
    const Status done = table_->bind(stag, region, spec);
    const auto it = oracle_.known.find(stag.index());
    const Known* r = current(region);
    const auto expect = [&]() -> Error {
      if (it == oracle_.known.end() || !it->second.is_window) return Error::kNotFound;
      if (it->second.valid) return Error::kBusy;
      if (r == nullptr || !r->valid || r->is_window) return Error::kNotFound;
      Access need = Access::kBindWindow;
      if (has(spec.access, Access::kRemoteWrite) || has(spec.access, Access::kRemoteAtomic)) {
        need = need | Access::kLocalWrite;
      }
      if (!has(r->spec.access, need) || r->spec.pd != it->second.spec.pd) return Error::kPermission;
      if (spec.length == 0 || spec.addr < r->spec.addr ||
          spec.addr + spec.length > r->spec.addr + r->spec.length) {
        return Error::kInvalidArgument;
      }
      if (stag.key() == it->second.key || stag.value == 0) return Error::kInvalidArgument;
      return Error{};
    }();
    if (expect != Error{}) {
      ASSERT_FALSE(done.has_value());
      ASSERT_EQ(done.error(), expect) << describe(done.error());
      return;
    }
    ASSERT_TRUE(done.has_value()) << describe(done.error());
    spec.pd = it->second.spec.pd;
    if (has(spec.access, Access::kZeroBased)) spec.base = 0;
    it->second = {stag.key(), true, true, spec, region.index()};
    given_.push_back(stag);
    ++binds_;
  }

  // kNotFound and kBusy as the contract says.
  [[nodiscard]] Error expected_end(Stag stag) {
    const Known* k = current(stag);
    if (k == nullptr) return Error::kNotFound;
    return oracle_.windows_of(stag.index()) != 0 && !k->is_window ? Error::kBusy : Error{};
  }

  void invalidate() {
    const Stag stag = some_stag();
    const Error expect = expected_end(stag);
    const Status done = table_->invalidate(stag);
    ASSERT_EQ(done.has_value() ? Error{} : done.error(), expect);
    if (done) current(stag)->valid = false;
  }

  void remove() {
    const Stag stag = some_stag();
    const Error expect = expected_end(stag);
    const Status done = table_->remove(stag);
    ASSERT_EQ(done.has_value() ? Error{} : done.error(), expect);
    if (!done) return;
    last_key_[stag.index()] = stag.key();
    oracle_.known.erase(stag.index());
  }

  void resolve() {
    Stag stag = some_stag();
    std::uint64_t to = rng_.next();
    if (const Known* k = current(stag); k != nullptr && !rng_.one_in(8)) {
      to = k->spec.base + rng_.between(0, k->spec.length + 2) - 1;
    }
    const std::uint64_t length = rng_.one_in(16) ? rng_.next() | 1U : rng_.between(1, 300);
    const Access need = rng_.one_in(2) ? Access::kNone : static_cast<Access>(1U << rng_.u32(0, 3));
    const StreamId who{rng_.u32(1, 2), rng_.u32(1, 2)};
    std::uint8_t* expected_at = nullptr;
    std::uint8_t* at = nullptr;
    const MemoryFault expected = oracle_.resolve(stag, to, length, need, who, expected_at);
    Pin pin;
    ASSERT_EQ(table_->resolve(stag, to, length, need, who, pin, at), expected);
    ASSERT_EQ(at, expected_at);
    hits_ += expected == MemoryFault::kNone ? 1 : 0;
  }

  Rng rng_;
  Rng random_;
  std::vector<std::uint8_t> memory_;
  std::uint32_t max_ = 0;
  std::unique_ptr<StagTable> table_;
  Oracle oracle_;
  std::vector<Stag> given_;
  std::map<std::uint32_t, std::uint8_t> last_key_;

 public:
  std::uint64_t hits_ = 0;
  std::uint64_t binds_ = 0;
};

TEST(StagTable, AgreesWithTheOracle) {
  std::uint64_t hits = 0, binds = 0;
  for_each_seed(60, [&](std::uint64_t seed) {
    StagTableModel model(seed);
    for (int i = 0; i < 3000; ++i) {
      model.step();
      if (::testing::Test::HasFailure()) return;
    }
    hits += model.hits_;
    binds += model.binds_;
  });
  EXPECT_GT(hits, 0U);
  EXPECT_GT(binds, 0U);
}

// --- what nobody may guess ---

class StagTables : public ::testing::Test {
 protected:
  StagTables() { g_random = &random_; }

  Rng random_{99};
  std::uint8_t octet_ = 0;
  const MemorySpec spec_{.addr = &octet_, .length = 1, .access = Access::kLocalWrite, .pd = 1};
};

TEST_F(StagTables, IndicesAreNeverTheSameAndFollowNoOrder) {
  StagTable table(42, random_bits, 1U << 24U);
  std::set<std::uint32_t> seen;
  std::uint32_t near = 0;
  std::uint32_t last = 0;
  for (int i = 0; i < 20000; ++i) {
    const Stag stag = *table.add(spec_);
    ASSERT_TRUE(seen.insert(stag.index()).second);
    const std::uint32_t distance = stag.index() > last ? stag.index() - last : last - stag.index();
    near += distance < 256 ? 1 : 0;
    last = stag.index();
  }
  // Random neighbors lie within 256 of each other once in 32768.
  EXPECT_LT(near, 40U);
}

TEST_F(StagTables, AnotherSecretGivesOtherIndices) {
  StagTable a(1, random_bits, 1000), b(2, random_bits, 1000);
  int same = 0;
  for (int i = 0; i < 1000; ++i) same += a.add(spec_)->index() == b.add(spec_)->index() ? 1 : 0;
  EXPECT_LT(same, 5);
}

TEST_F(StagTables, AFreedSlotIsUsedAgainLate) {
  StagTable table(7, random_bits, 1U << 24U);
  const Stag freed = *table.add(spec_);
  ASSERT_TRUE(table.remove(freed));
  for (int i = 0; i < 4096; ++i) {
    const Stag stag = *table.add(spec_);
    ASSERT_NE(stag.index(), freed.index()) << "after " << i;
    ASSERT_TRUE(table.remove(stag));
  }
}

TEST_F(StagTables, ASlotDoesNotGetItsLastKeysAgain) {
  StagTable table(7, random_bits, 1);
  std::vector<Stag> history;
  for (int i = 0; i < 2000; ++i) {
    const Stag stag = *table.add(spec_);
    for (std::size_t back = 1; back <= 3 && back <= history.size(); ++back) {
      ASSERT_NE(stag, history[history.size() - back]);
    }
    history.push_back(stag);
    ASSERT_TRUE(table.remove(stag));
  }
}

TEST_F(StagTables, AFullTableSaysSoAndTakesAgainAfterRemove) {
  StagTable table(7, random_bits, 300);
  std::vector<Stag> all;
  for (int i = 0; i < 300; ++i) all.push_back(*table.add(spec_));
  EXPECT_EQ(table.add(spec_).error(), Error::kLimitExceeded);
  EXPECT_EQ(table.allocate_window(1).error(), Error::kLimitExceeded);
  ASSERT_TRUE(table.remove(all[17]));
  const Stag again = *table.add(spec_);
  EXPECT_EQ(again.index(), all[17].index());
  EXPECT_NE(again, all[17]);
}

TEST_F(StagTables, OldStagsStayInvalidAfterReuse) {
  StagTable table(7, random_bits, 1);
  const Stag old = *table.add(spec_);
  ASSERT_TRUE(table.remove(old));
  ASSERT_TRUE(table.add(spec_));
  Pin pin;
  std::uint8_t* at = nullptr;
  EXPECT_EQ(table.resolve(old, 0, 1, Access::kNone, {1, 1}, pin, at), MemoryFault::kInvalidStag);
  EXPECT_EQ(table.invalidate(old).error(), Error::kNotFound);
  EXPECT_EQ(table.remove(old).error(), Error::kNotFound);
}

TEST_F(StagTables, StagZeroIsNeverFound) {
  StagTable table(7, random_bits, 1U << 24U);
  Pin pin;
  std::uint8_t* at = nullptr;
  EXPECT_EQ(table.resolve(Stag{0}, 0, 1, Access::kNone, {1, 1}, pin, at),
            MemoryFault::kInvalidStag);
}

// --- many threads ---

// Once invalidate() has returned, nobody touches the memory: the writer then uses it alone, without
// any lock. A reader that still wrote would be seen by the value, and as a race.
TEST_F(StagTables, NobodyTouchesMemoryAfterInvalidate) {
  constexpr int kReaders = 2;
  constexpr int kRounds = 3000;
  StagTable table(5, random_bits, 64);
  std::uint64_t word = 0;
  const MemorySpec spec{.addr = reinterpret_cast<std::uint8_t*>(&word),
                        .length = sizeof word,
                        .access = Access::kRemoteWrite,
                        .pd = 1};
  std::atomic<std::uint32_t> current{0};
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> writes{0};
  std::vector<std::jthread> readers;
  for (int r = 0; r < kReaders; ++r) {
    readers.emplace_back([&, r] {
      while (!stop.load()) {
        Pin pin;
        std::uint8_t* at = nullptr;
        const Stag stag{current.load()};
        // Each reader has an octet of its own, so that they do not race with each other.
        const auto offset = static_cast<std::uint64_t>(r);
        if (table.resolve(stag, offset, 1, Access::kRemoteWrite, {1, 1}, pin, at) ==
            MemoryFault::kNone) {
          *at = 0xff;
          writes.fetch_add(1);
        }
      }
    });
  }
  std::vector<Stag> old;
  for (int round = 0; round < kRounds; ++round) {
    const Stag stag = *table.add(spec);
    current.store(stag.value);
    if (round % 16 == 0) {
      const std::uint64_t before = writes.load();
      for (int spin = 0; spin < 100000 && writes.load() == before; ++spin)
        std::this_thread::yield();
    }
    ASSERT_TRUE(round % 2 == 0 ? table.remove(stag) : table.invalidate(stag));
    word = 0;
    for (int i = 0; i < 50; ++i) ASSERT_EQ(word, 0U);
    ASSERT_TRUE(round % 2 == 0 || table.remove(stag));
  }
  stop.store(true);
  readers.clear();
  EXPECT_GT(writes.load(), 0U);
}

// Readers look up all kinds of STags while the table grows and shrinks.
TEST_F(StagTables, ReadersNeverSeeHalfAnEntry) {
  StagTable table(5, random_bits, 5000);
  constexpr std::uint64_t kLengths[] = {8, 16, 24};
  std::vector<std::uint8_t> memory(64);
  std::atomic<std::uint32_t> latest{1};
  std::atomic<bool> stop{false};
  std::vector<std::jthread> readers;
  std::atomic<int> wrong{0};
  for (int r = 0; r < 2; ++r) {
    readers.emplace_back([&] {
      while (!stop.load()) {
        Pin pin;
        std::uint8_t* at = nullptr;
        const Stag stag{latest.load()};
        if (table.resolve(stag, 0, 1, Access::kNone, {1, 1}, pin, at) != MemoryFault::kNone)
          continue;
        const MemorySpec& spec = pin.entry()->spec;
        // Address and length were written together: the one tells the other.
        if (spec.length != kLengths[spec.addr - memory.data()]) wrong.fetch_add(1);
      }
    });
  }
  std::vector<Stag> live;
  for (int i = 0; i < 20000; ++i) {
    const std::size_t kind = static_cast<std::size_t>(i) % 3;
    if (live.size() < 1000) {
      live.push_back(*table.add({.addr = memory.data() + kind,
                                 .length = kLengths[kind],
                                 .access = Access::kNone,
                                 .pd = 1}));
      latest.store(live.back().value);
    } else {
      for (int k = 0; k < 500; ++k) {
        ASSERT_TRUE(table.remove(live.back()));
        live.pop_back();
      }
    }
  }
  stop.store(true);
  readers.clear();
  EXPECT_EQ(wrong.load(), 0);
}

}  // namespace
}  // namespace weft::proto

#include "ibverbs/ibv_device_memory.h"

#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "ibverbs/access.h"
#include "ibverbs/context.h"
#include "ibverbs/errors.h"
#include "ibverbs/fork_child.h"
#include "ibverbs/likeness.h"
#include "ibverbs/local_keys.h"
#include "ibverbs/registry.h"
#include "os/cancel.h"
#include "os/guarded.h"
#include "os/lock.h"
#include "os/say.h"

namespace weft::ibverbs {
namespace {

// The process's device memory; each context is an owner of parts of it.
struct HeapState {
  os::Mutex mutex;
  std::shared_ptr<DeviceMemoryHeap> heap WEFT_GUARDED_BY(mutex);
};
HeapState* heap_state = new HeapState;
std::atomic<std::uint32_t> next_dm_handle{1};

// The child's heap is its own; the parent's is not mapped there.
void forget_heap() { heap_state = new HeapState; }

Result<std::shared_ptr<DeviceMemoryHeap>> heap() {
  if (device_memory_bytes() == 0) return fail(Error::kUnsupported);
  on_fork_child(forget_heap);
  const os::MutexLock lock(heap_state->mutex);
  if (heap_state->heap != nullptr) return heap_state->heap;
  DeviceMemoryOptions options;
  options.bytes = device_memory_bytes();
  auto made = DeviceMemoryHeap::create(options);
  if (made) heap_state->heap = *made;
  return made;
}

Result<std::shared_ptr<DeviceMemoryOwner>> owner_of(Context& context) {
  const os::MutexLock lock(context.memory_mutex);
  if (context.memory == nullptr) {
    auto shared = heap();
    if (!shared) return fail(shared.error());
    context.memory = (*shared)->add_owner();
  }
  return context.memory;
}

// Null once the context is closed.
std::shared_ptr<DeviceMemoryOwner> memory_of(const Dm& dm) {
  const os::MutexLock lock(dm.context->memory_mutex);
  return dm.context->memory;
}

// Adapters copy whole words; programs for them fail here too when they ask for less.
bool whole_words(std::uint64_t offset, std::size_t length) {
  constexpr std::uint64_t kWordBytes = 4;
  return offset % kWordBytes == 0 && length % kWordBytes == 0;
}

int copy_to(ibv_dm* handle, std::uint64_t offset, const void* from, std::size_t length) {
  const auto dm = registry::find<Dm>(handle);
  if (!dm || (from == nullptr && length != 0) || !whole_words(offset, length))
    return fail_number(EINVAL);
  const auto memory = memory_of(*dm);
  if (memory == nullptr) return fail_number(EINVAL);
  return fail_number(errno_of(
      memory->copy_to(dm->handle, offset, {static_cast<const std::uint8_t*>(from), length})));
}

int copy_from(void* to, ibv_dm* handle, std::uint64_t offset, std::size_t length) {
  const auto dm = registry::find<Dm>(handle);
  if (!dm || (to == nullptr && length != 0) || !whole_words(offset, length))
    return fail_number(EINVAL);
  const auto memory = memory_of(*dm);
  if (memory == nullptr) return fail_number(EINVAL);
  return fail_number(
      errno_of(memory->copy_from(dm->handle, offset, {static_cast<std::uint8_t*>(to), length})));
}

}  // namespace

std::uint64_t device_memory_bytes() {
  constexpr std::uint64_t kDefault = std::uint64_t{64} << 20U;
  constexpr std::uint64_t kMost = std::uint64_t{64} << 30U;
  const char* text = secure_getenv("WEFT_DEVICE_MEMORY");
  if (text == nullptr) return kDefault;
  std::uint64_t bytes = 0;
  const char* end = text + std::strlen(text);
  const auto [at, error] = std::from_chars(text, end, bytes);
  const bool legal =
      error == std::errc{} && at == end && bytes <= kMost && (bytes == 0 || bytes >= 512);
  if (legal) return bytes;
  static std::once_flag once;
  const os::NoCancel guard;
  std::call_once(once, [text] {
    os::say(
        "weft: WEFT_DEVICE_MEMORY=%s is no size in bytes: 0, or 512 to 64 GiB. "
        "There is no device memory in this process\n",
        text);
  });
  return 0;
}

ibv_dm* alloc_dm(ibv_context* handle, ibv_alloc_dm_attr* attr) {
  WEFT_MAY_FAIL(ibv_alloc_dm, fail_null);
  return or_null([&]() -> ibv_dm* {
    const auto context = registry::find<Context>(handle);
    if (!context || attr == nullptr || attr->comp_mask != 0) return fail_null(EINVAL);
    if (const int error = refused(like::Act::kDmAlloc); error != 0) return fail_null(error);
    const auto owner = owner_of(*context);
    if (!owner) return fail_null(errno_of(owner.error()));
    auto dm = std::make_unique<Dm>();
    const auto segment = (*owner)->allocate(attr->length, attr->log_align_req);
    if (!segment) return fail_null(errno_of(segment.error()));
    dm->context = context.object();
    dm->handle = *segment;
    dm->pub.context = handle;
    dm->pub.memcpy_to_dm = copy_to;
    dm->pub.memcpy_from_dm = copy_from;
    dm->pub.comp_mask = IBV_DM_MASK_HANDLE;
    dm->pub.handle = next_dm_handle.fetch_add(1);
    const auto adopted =
        os::guarded([&]() -> Result<ibv_dm*> { return registry::adopt(std::move(dm)); });
    if (adopted) return *adopted;
    static_cast<void>((*owner)->free(*segment));
    return fail_null(errno_of(adopted.error()));
  });
}

int free_dm(ibv_dm* handle) {
  const auto dm = registry::find<Dm>(handle);
  if (!dm) return fail_number(EINVAL);
  const auto memory = memory_of(*dm);
  if (memory == nullptr) return fail_number(EINVAL);
  if (const Status freed = memory->free(dm->handle); !freed) return fail_number(errno_of(freed));
  return fail_number(registry::quarantine(handle, dm) ? 0 : EINVAL);
}

ibv_mr* reg_dm_mr(ibv_pd* pd_handle, ibv_dm* dm_handle, std::uint64_t offset, std::size_t length,
                  unsigned access) {
  WEFT_MAY_FAIL(ibv_reg_dm_mr, fail_null);
  return or_null([&]() -> ibv_mr* {
    const auto pd = registry::find<Pd>(pd_handle);
    const auto dm = registry::find<Dm>(dm_handle);
    if (!pd || !dm || pd->context != dm->context) return fail_null(EINVAL);
    if ((access & IBV_ACCESS_ZERO_BASED) == 0 || length == 0) return fail_null(EINVAL);
    const std::optional<Access> rights = region_access(access);
    const auto memory = memory_of(*dm);
    if (!rights || memory == nullptr) return fail_null(EINVAL);
    auto engine = memory->register_memory(*pd->engine, dm->handle, offset, length, *rights);
    if (!engine) return fail_null(errno_of(engine.error()));
    auto mr = std::make_unique<Mr>();
    mr->engine = std::move(*engine);
    if (!mr->pd.take(pd.object())) return fail_null(EINVAL);
    mr->of_device_memory = true;
    mr->pub.context = pd->pub.context;
    mr->pub.pd = &pd->pub;
    mr->pub.handle = next_dm_handle.fetch_add(1);
    mr->pub.length = length;
    mr->pub.lkey = give_lkey(*mr->engine);
    mr->pub.rkey = mr->engine->rkey();
    return registry::adopt(std::move(mr));
  });
}

}  // namespace weft::ibverbs

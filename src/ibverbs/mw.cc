#include <cerrno>

#include "ibverbs/access.h"
#include "ibverbs/errors.h"
#include "ibverbs/likeness.h"
#include "ibverbs/observed.h"
#include "ibverbs/post.h"
#include "ibverbs/registry.h"
#include "ibverbs/windows.h"
#include "os/lock.h"

namespace weft::ibverbs {

ibv_mw* alloc_mw(ibv_pd* handle, ibv_mw_type type) {
  WEFT_MAY_FAIL(ibv_alloc_mw, fail_null);
  return or_null([&]() -> ibv_mw* {
    const auto pd = registry::find<Pd>(handle);
    if (!pd) return fail_null(EINVAL);
    if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) return fail_null(EINVAL);
    int error = refused_window(type);
    if (error == 0) error = refused_one_more(like::Number::kMaxMw, registry::count(Kind::kMw));
    if (error != 0) return fail_null(error);
    auto engine = pd->engine->create_window(type == IBV_MW_TYPE_1 ? MemoryWindow::Type::kType1
                                                                  : MemoryWindow::Type::kType2);
    if (!engine) return fail_null(errno_of(engine.error()));
    auto mw = std::make_unique<Mw>();
    mw->engine = std::move(*engine);
    if (!mw->pd.take(pd.object())) return fail_null(EINVAL);
    mw->pub.context = pd->pub.context;
    mw->pub.pd = handle;
    mw->pub.rkey = mw->engine->rkey();
    mw->pub.type = type;
    return registry::adopt(std::move(mw));
  });
}

int dealloc_mw(ibv_mw* handle) {
  const auto mw = registry::find<Mw>(handle);
  if (!mw || !registry::quarantine(handle, mw)) return fail_number(EINVAL);
  mw->engine.reset();
  mw->pd.reset();
  return 0;
}

int fill_bind(SendWr& out, BindParts& parts, ibv_mw* window, std::uint32_t rkey,
              const ibv_mw_bind_info& info) {
  const auto mw = registry::find<Mw>(window);
  if (!mw) return EINVAL;
  const auto mr = registry::find<Mr>(info.mr);
  if (!mr && (info.mr != nullptr || info.length != 0)) return EINVAL;
  const std::optional<Access> access = window_access(info.mw_access_flags);
  if (!access) return EINVAL;
  parts.handle = window;
  parts.domain = mw->pd->engine.get();
  parts.window = mw->engine;
  if (mr) {
    const os::MutexLock lock(mr->changing);
    if (mr->pd->engine != mw->pd->engine) return EPERM;
    parts.region = mr->engine;
  }
  out.op = SendOp::kBindWindow;
  out.window = parts.window.get();
  out.window_region = parts.region.get();
  out.rkey = rkey;
  out.remote_addr = info.addr;
  out.window_length = info.length;
  out.window_access = *access;
  return 0;
}

int bind_mw(ibv_qp* qp, ibv_mw* handle, ibv_mw_bind* bind) {
  WEFT_MAY_FAIL(ibv_bind_mw, fail_number);
  if (bind == nullptr) return fail_number(EINVAL);
  const auto object = registry::find<Qp>(qp);
  if (!object) return fail_number(EINVAL);
  const auto window = registry::find<Mw>(handle);
  if (!window) return fail_number(EINVAL);
  if (const int error = refused(like::Act::kPostBindMw); error != 0) return fail_number(error);
  SendWr wr;
  BindParts parts;
  wr.wr_id = bind->wr_id;
  wr.flags = send_flags(bind->send_flags);
  const std::uint32_t rkey = ibv_inc_rkey(handle->rkey);
  if (const int error = fill_bind(wr, parts, handle, rkey, bind->bind_info); error != 0) {
    return fail_number(error);
  }
  if (observer != nullptr) observe_bind(*object, *bind);
  if (const Status posted = object->posts_to->queue_send(wr); !posted) {
    if (observer != nullptr) observer->not_posted(qp);
    return fail_number(errno_of(posted.error()));
  }
  object->posts_to->ring();
  handle->rkey = wr.window->rkey();  // the engine chooses the key of type 1
  observe_key(handle, handle->rkey, bind->bind_info);
  return 0;
}

}  // namespace weft::ibverbs

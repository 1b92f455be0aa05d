// Loads the module of `weft run --check`, `--faults` and `--timeline` when this library is loaded.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "ibverbs/async.h"
#include "ibverbs/fork_child.h"
#include "ibverbs/ibv_qp.h"
#include "ibverbs/observed.h"
#include "ibverbs/registry.h"
#include "os/say.h"

namespace weft::ibverbs {
namespace {

void raise_cm(int event) {
  if (auto* const raise = raise_in_rdma_cm.load()) raise(event);
}

const char* name_of(QpState state) {
  switch (state) {
    case QpState::kReset: return "RESET";
    case QpState::kInit: return "INIT";
    case QpState::kRtr: return "RTR";
    case QpState::kRts: return "RTS";
    case QpState::kSqd: return "SQD";
    case QpState::kSqe: return "SQE";
    case QpState::kError: break;
  }
  return "ERROR";
}

std::string look_at(const void* handle, check::Kind kind) {
  if (kind == check::Kind::kCq) {
    const auto cq = registry::find<Cq>(handle);
    const std::size_t queued = cq ? cq->engine->queued() : 0;
    if (queued == 0) return {};
    return std::to_string(queued) + (queued == 1 ? " completion" : " completions") +
           " in it that the program has not polled";
  }
  const auto qp = registry::find<Qp>(handle);
  if (!qp) return {};
  std::string out = name_of(qp->engine->state());
  if (const auto connection = qp->engine->connection())
    out += ", peer " + connection->peer_address().text();
  return out;
}

check::Unread unread_of(const void* handle, check::Kind kind) {
  check::Unread out;
  if (kind == check::Kind::kCq) {
    if (const auto cq = registry::find<Cq>(handle)) out.completions = cq->engine->queued();
  } else if (kind == check::Kind::kQp) {
    const auto qp = registry::find<Qp>(handle);
    out.broken = qp && qp->engine->state() == QpState::kError;
  } else if (const auto context = registry::find<Context>(handle)) {
    out.events = unread_async(*context);
  }
  return out;
}

constexpr check::Hands kHands{break_qp, disconnect_qp, raise_async, raise_cm, look_at, unread_of};

// libweft-check.so is in the folder of this library.
void* load_module() {
  Dl_info self{};
  if (dladdr(reinterpret_cast<void*>(inherit_observer), &self) == 0) return nullptr;
  std::string path = self.dli_fname;
  path = path.substr(0, path.rfind('/') + 1) + "libweft-check.so";
  return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
}

__attribute__((constructor)) void start_observing() {
  const char* wanted = std::getenv("WEFT_CHECK");
  const bool with_rules = wanted != nullptr && std::strcmp(wanted, "on") == 0;
  const bool with_faults = std::getenv("WEFT_FAULTS_FILE") != nullptr;
  if (!with_rules && !with_faults && std::getenv("WEFT_TIMELINE") == nullptr) return;
  void* const module = load_module();
  auto* const open = module != nullptr
                         ? reinterpret_cast<check::Observer* (*)(const check::Hands*)>(
                               dlsym(module, "weft_check_open"))
                         : nullptr;
  if (open == nullptr) return os::say("weft: libweft-check.so: %s\n", dlerror());
  on_fork_child(inherit_observer);
  checked = with_rules;
  keeps_destroyed = with_rules || with_faults;
  observer = open(&kHands);
}

}  // namespace
}  // namespace weft::ibverbs

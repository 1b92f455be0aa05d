// Tells the rules of `weft run --check` of objects, requests and completions. Nothing of this runs
// where `observer` (errors.h) is null.
#pragma once

#include <infiniband/verbs.h>

#include "check/observer.h"
#include "ibverbs/errors.h"
#include "ibverbs/objects.h"

namespace weft::ibverbs {

// This thread is in a function that no symbol names.
class InCall {
 public:
  explicit InCall(const char* name) { observer->in_call(name); }
  ~InCall() { observer->in_call(nullptr); }
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;
};

[[nodiscard]] check::Made made_of(Context& context);
[[nodiscard]] check::Made made_of(Pd& pd);
[[nodiscard]] check::Made made_of(ThreadDomain& domain);
[[nodiscard]] check::Made made_of(Mr& mr);
[[nodiscard]] check::Made made_of(Mw& mw);
[[nodiscard]] check::Made made_of(Channel& channel);
[[nodiscard]] check::Made made_of(Cq& cq);
[[nodiscard]] check::Made made_of(Qp& qp);
[[nodiscard]] check::Made made_of(Srq& srq);
[[nodiscard]] check::Made made_of(Dm& dm);
[[nodiscard]] check::Made made_of(Ah& ah);

// The end of an object without users, as Users::close().
template <class T>
[[nodiscard]] int close_users(T& object) {
  const int error = object.users.close();
  if (error == EBUSY && observer != nullptr) observer->busy(handle_of(object));
  return error;
}

// A function of the table of a destroyed object was called.
inline void observe_dead(const char* call, const void* handle) {
  if (observer == nullptr) return;
  const InCall in(call);
  observer->not_live(handle);
}

// A batch of the ibv_wr_ builder, before it is posted.
void observe_batch(Qp& qp);
void observe_completion(const WorkCompletion& completion);

// Puts functions that observe into the table of a context.
void observe_operations(ibv_context_ops& ops);

}  // namespace weft::ibverbs

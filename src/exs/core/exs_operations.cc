#include "exs/core/exs_operations.h"

#include <cassert>

namespace weft::exs {

Operation& Operations::add(OperationList& list) {
  assert(list.size() < kPendingMax);
  assert(list.empty() || (&list != &connecting && &list != &shutdown && &list != &closing));
  if (spare_.empty()) {
    list.emplace_back();
  } else {
    list.splice(list.end(), spare_, spare_.begin());
  }
  return list.back();
}

void Operations::drop(OperationList& list, OperationList::iterator it) {
  assert(it != list.end());
  it->reset();
  spare_.splice(spare_.begin(), list, it);
}

bool Operations::none() const {
  return sends.empty() && receives.empty() && accepts.empty() && one_sided.empty() &&
         connecting.empty() && shutdown.empty() && closing.empty();
}

}  // namespace weft::exs

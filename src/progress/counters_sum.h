// Sums of counters.
#pragma once

#include <weft/counters.h>

#include "proto/counters.h"

namespace weft::progress {

void add(Counters& sum, const Counters& more);
void add(Counters& sum, const proto::StreamCounters& more);

}  // namespace weft::progress

// All of Weft's C++ API. C programs use verbs instead (libibverbs and librdmacm): see weft(7).
#pragma once

#include <weft/address.h>
#include <weft/completion.h>
#include <weft/config.h>
#include <weft/connection.h>
#include <weft/counters.h>
#include <weft/device.h>
#include <weft/device_memory.h>
#include <weft/interfaces.h>
#include <weft/limits.h>
#include <weft/memory.h>
#include <weft/monitor.h>
#include <weft/placement.h>
#include <weft/queue_pair.h>
#include <weft/read_send.h>
#include <weft/result.h>
#include <weft/system_error.h>
#include <weft/types.h>
#include <weft/wiring.h>

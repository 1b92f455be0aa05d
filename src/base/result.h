// Error and Result for code below the public API; the definitions are public.
#pragma once

#include <weft/result.h>

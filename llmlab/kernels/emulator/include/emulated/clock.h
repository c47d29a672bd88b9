// clock64() counts nanoseconds here: it goes forward, and says nothing about a GPU.
#pragma once
#include "keywords.h"

namespace emulated { long long clock_now(); }

inline EMULATED_UNWATCHED long long clock64() { return emulated::clock_now(); }
inline EMULATED_UNWATCHED int clock() { return int(emulated::clock_now()); }

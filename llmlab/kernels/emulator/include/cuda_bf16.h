#pragma once
#include "emulated/bfloat16.h"

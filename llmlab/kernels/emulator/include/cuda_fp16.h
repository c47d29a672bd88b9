#pragma once
#include "emulated/half.h"

// The emulator has included what this header declares.
#pragma once
#include "emulated/device.h"

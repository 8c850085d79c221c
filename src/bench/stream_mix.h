// SPDX-License-Identifier: Apache-2.0
// The memory's roof for one variant of the update: hand-written loops that read and write, in place, exactly
// the bytes the update does, with one cheap operation on each vector. The fastest of several loops is the
// roof, because none is fastest on every machine. What they leave behind is still usable state: only low bits
// of significands and codes change.
#pragma once

#include <string>
#include <vector>

#include "headrace/adam.h"

namespace headrace::bench {

constexpr size_t kWeightFormats = 4, kMomentFormats = 4, kGradientFormats = 2;

/// Runs on the calling thread; span.count is a multiple of adam::kTileElems. Every element of the arrays that
/// the format writes changes, and every byte of those that it reads is read.
using MixRun = void (*)(const adam::Span& span);

struct ShapedMix {
  MixRun run = nullptr;  ///< nullptr where this loop is not made for the format
  double bytes = 0;      ///< read and written for one element
};

/// One loop for every format.
struct MixTable {
  ShapedMix of[kWeightFormats][kMomentFormats][kGradientFormats];
};

/// The loops of one instruction set; they differ in how far they follow one array before they turn to the
/// next.
struct IsaMixes {
  MixTable lines;         ///< a vector of fp32 elements, as the update itself; the copy around the caches
  MixTable lines_cached;  ///< the same, the copy stored like the rest
  MixTable blocks;        ///< four vectors of each fp32 array at a time
  MixTable runs;          ///< sixteen
};
extern const IsaMixes kScalarMixes;
extern const IsaMixes kAvx2Mixes;
extern const IsaMixes kAvx512Mixes;

struct StreamMix {
  std::string name;
  MixRun run;
  double bytes;
};

/// The loops to compare an update with on this machine: those of its widest instruction set (HEADRACE_ISA
/// does not lower the memory's roof), and with 512-bit vectors also one of 256 bits.
std::vector<StreamMix> stream_mixes(const adam::Format& format, DType gradient);
/// Those of one instruction set, which the machine must support.
std::vector<StreamMix> stream_mixes(adam::Isa isa, const adam::Format& format, DType gradient);

/// Runs the mix on the threads of `workers`, each on the contiguous part that Workers::update() gives it.
void run_mix(MixRun mix, const adam::Format& format, const adam::Span& span, adam::Workers& workers);

}  // namespace headrace::bench

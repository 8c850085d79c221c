// SPDX-License-Identifier: Apache-2.0
// The list of configuration keys. Nothing but the list: how a kind of field is read and printed stands in
// config_value.cpp.
#include <array>
#include <limits>

#include "cli/config_key.h"

namespace headrace::cli {
namespace {

constexpr int64_t kAnyCount = std::numeric_limits<int64_t>::max();
constexpr uint64_t kAnyBytes = uint64_t(1) << 50;
// Divisors are floats in the kernels: far above the smallest of them, 1.2e-38.
constexpr double kTiny = 1e-30;

// `at` is a captureless lambda that gives a reference to the key's place, for a Config or a const Config.
template <class At>
IntegerField integer(At, int64_t min, int64_t max = kAnyCount) {
  return {[](const Config& c) { return static_cast<int64_t>(At{}(c)); },
          [](Config& c, int64_t value) {
            auto& place = At{}(c);
            place = static_cast<std::remove_reference_t<decltype(place)>>(value);
          },
          min, max};
}

template <class At>
RealField real(At, double min, double max) {
  return {[](const Config& c) { return double(At{}(c)); }, [](Config& c, double value) { At{}(c) = value; },
          min, max};
}

template <class At>
BoolField boolean(At) {
  return {[](const Config& c) { return bool(At{}(c)); }, [](Config& c, bool value) { At{}(c) = value; }};
}

template <class At>
TextListField text_list(At) {
  return {[](const Config& c) { return std::vector<std::string>(At{}(c)); },
          [](Config& c, std::vector<std::string> value) { At{}(c) = std::move(value); }};
}

template <class At>
BytesField bytes(At, uint64_t min, uint64_t max = kAnyBytes, uint64_t multiple_of = 1) {
  return {[](const Config& c) { return uint64_t(At{}(c)); },
          [](Config& c, uint64_t value) { At{}(c) = value; }, min, max, multiple_of};
}

/// `words` in the order of the enumerators.
template <class At>
WordField word(At, std::span<const std::string_view> words) {
  return {[](const Config& c) { return static_cast<size_t>(At{}(c)); },
          [](Config& c, size_t index) {
            auto& place = At{}(c);
            place = static_cast<std::remove_reference_t<decltype(place)>>(index);
          },
          words};
}

constexpr std::array<std::string_view, 2> kFamilies = {"llama", "gpt2"};
constexpr std::array<std::string_view, 3> kFormats = {"text", "llmc", "raw"};
constexpr std::array<std::string_view, 2> kTokenTypes = {"uint16", "uint32"};
constexpr std::array<std::string_view, 2> kPrecisions = {"fp32", "bf16"};
constexpr std::array<std::string_view, 4> kRules = std::to_array<std::string_view>(
    {adam::kRuleNames[0], adam::kRuleNames[1], adam::kRuleNames[2], adam::kRuleNames[3]});
constexpr std::array<std::string_view, 4> kMoments = std::to_array<std::string_view>(
    {adam::kMomentNames[0], adam::kMomentNames[1], adam::kMomentNames[2], adam::kMomentNames[3]});
constexpr std::array<std::string_view, 3> kSchedules = {"cosine", "linear", "constant"};
constexpr std::array<std::string_view, 3> kDevices = {"auto", "cuda", "host"};
constexpr std::array<std::string_view, 3> kTiers = {"device", "host", "nvme"};
constexpr std::array<std::string_view, 4> kTiersOrAuto = {"auto", "device", "host", "nvme"};
constexpr std::array<std::string_view, 2> kRecompute = {"auto", "always"};
constexpr std::array<std::string_view, 3> kNvmeEngines = {"auto", "io_uring", "posix"};

/// Training and validation files are of one format.
constexpr WordField kDataFormat = {
    [](const Config& c) { return size_t(c.train_data.format); },
    [](Config& c, size_t i) { c.train_data.format = c.valid_data.format = TokenFormat(i); }, kFormats};
constexpr WordField kTokenType = {
    [](const Config& c) { return size_t(c.train_data.raw_width); },
    [](Config& c, size_t i) { c.train_data.raw_width = c.valid_data.raw_width = TokenWidth(i); },
    kTokenTypes};
constexpr WordField kGradients = {[](const Config& c) {
                                    const auto& tier = c.engine.placement.gradients;
                                    return tier ? size_t(*tier) + 1 : size_t(0);
                                  },
                                  [](Config& c, size_t i) {
                                    c.engine.placement.gradients =
                                        i == 0 ? std::nullopt : std::optional(Tier(i - 1));
                                  },
                                  kTiersOrAuto};

const Key kKeys[] = {
    {"model.preset", "A known shape; keys given beside it, or by a later --set, override it.", PresetField{}},
    {"model.family", "Kind of transformer.",
     word(
         [](auto& c) -> auto& { return c.model.family; }, kFamilies)},
    {"model.layers", "Transformer layers.",
     integer(
         [](auto& c) -> auto& { return c.model.layers; }, 1, 10'000)},
    {"model.hidden", "Width of the residual stream.",
     integer(
         [](auto& c) -> auto& { return c.model.hidden; }, 1, 1 << 20)},
    {"model.heads", "Query heads; divides hidden.",
     integer(
         [](auto& c) -> auto& { return c.model.heads; }, 1, 1 << 16)},
    {"model.kv_heads", "Key/value heads; divides heads. gpt2 has as many as heads.",
     integer(
         [](auto& c) -> auto& { return c.model.kv_heads; }, 0, 1 << 16),
     "heads"},
    {"model.ffn", "Width of the feed-forward part.",
     integer(
         [](auto& c) -> auto& { return c.model.ffn; }, 0, 1 << 20),
     "gpt2: 4 hidden; llama: 8/3 hidden, rounded up to a multiple of 64"},
    {"model.vocab", "Token ids; byte-level text needs 256.",
     integer(
         [](auto& c) -> auto& { return c.model.vocab; }, 2, 1 << 24)},
    {"model.max_seq", "Longest sequence the model can take.",
     integer(
         [](auto& c) -> auto& { return c.model.max_seq; }, 0, 1 << 20),
     "data.seq_len"},
    {"model.tied", "The output projection is the embedding table.",
     boolean([](auto& c) -> auto& { return c.model.tied; })},
    {"model.rope_theta", "Base of the rotary angles (llama).",
     real(
         [](auto& c) -> auto& { return c.model.rope_theta; }, 1, 1e12)},
    {"model.norm_eps", "Added under the root of every norm.",
     real(
         [](auto& c) -> auto& { return c.model.norm_eps; }, kTiny, 1)},

    {"data.train", "Files to train on; paths are relative to the current folder.",
     text_list([](auto& c) -> auto& { return c.train_data.paths; })},
    {"data.valid", "Files to validate on; empty: no validation.",
     text_list([](auto& c) -> auto& { return c.valid_data.paths; })},
    {"data.format", "text: bytes are tokens; llmc: llm.c shards; raw: token ids without a header.",
     kDataFormat},
    {"data.token_dtype", "Width of the token ids in raw files.", kTokenType},
    {"data.seq_len", "Tokens of a sequence.",
     integer(
         [](auto& c) -> auto& { return c.seq_len; }, 1, 1 << 20)},

    {"train.steps", "Optimizer steps of the whole run.",
     integer(
         [](auto& c) -> auto& { return c.train.steps; }, 0)},
    {"train.micro_batch", "Sequences in a micro-batch.",
     integer(
         [](auto& c) -> auto& { return c.train.micro_batch; }, 1, 1 << 16)},
    {"train.grad_accum", "Micro-batches in a step.",
     integer(
         [](auto& c) -> auto& { return c.train.grad_accum; }, 1, 1 << 16)},
    {"train.seed", "Initial weights and the order of the data follow from it.",
     integer(
         [](auto& c) -> auto& { return c.train.seed; }, 0)},
    {"train.precision",
     "Weights, activations and gradients; masters are fp32 (24 bits with optimizer.moments = \"q8\").",
     word(
         [](auto& c) -> auto& { return c.engine.precision; }, kPrecisions)},
    {"train.eval_every", "Steps between validations; 0: only at the end.",
     integer(
         [](auto& c) -> auto& { return c.train.eval_every; }, 0)},
    {"train.eval_batches", "Micro-batches of a validation.",
     integer(
         [](auto& c) -> auto& { return c.train.eval_batches; }, 1)},
    {"train.log_every", "Steps between progress lines on a pipe.",
     integer(
         [](auto& c) -> auto& { return c.train.log_every; }, 1)},

    {"optimizer.rule", "Update rule; adam and adagrad add the weight decay to the gradient.",
     word(
         [](auto& c) -> auto& { return c.engine.rule; }, kRules)},
    {"optimizer.moments",
     "Format of the moments. bf16_m: the first in bf16; bf16: both, rounded stochastically; q8: both in 8 "
     "bits by "
     "blocks, weights in 24. lion has fp32 and bf16_m, adagrad fp32.",
     word(
         [](auto& c) -> auto& { return c.engine.moments; }, kMoments)},
    {"optimizer.lr", "Peak learning rate.",
     real(
         [](auto& c) -> auto& { return c.optimizer.adam.lr; }, 0, 1e6)},
    {"optimizer.betas", "Decay of the first and the second moment.", BetasField{}},
    {"optimizer.eps", "Added to the root of the second moment.",
     real(
         [](auto& c) -> auto& { return c.optimizer.adam.eps; }, kTiny, 1)},
    {"optimizer.weight_decay", "Decoupled decay of matrices; biases, norms and embeddings take none.",
     real(
         [](auto& c) -> auto& { return c.optimizer.adam.weight_decay; }, 0, 1e6)},
    {"optimizer.grad_clip", "Largest global norm of the gradient; 0: no clipping.",
     real(
         [](auto& c) -> auto& { return c.optimizer.grad_clip; }, 0, 1e30)},
    {"optimizer.schedule", "Learning rate after the warm-up.",
     word(
         [](auto& c) -> auto& { return c.optimizer.schedule; }, kSchedules)},
    {"optimizer.warmup_steps", "Steps of linear warm-up.",
     integer(
         [](auto& c) -> auto& { return c.optimizer.warmup_steps; }, 0)},
    {"optimizer.min_lr_fraction", "Where the schedule ends, as a part of lr.",
     real(
         [](auto& c) -> auto& { return c.optimizer.min_lr_fraction; }, 0, 1)},
    {"optimizer.max_skipped_steps", "Non-finite steps in a row after which the run stops; 0: never.",
     integer(
         [](auto& c) -> auto& { return c.optimizer.max_skipped_steps; }, 0)},
    {"optimizer.threads", "Threads of the update; 0: all cores.",
     integer(
         [](auto& c) -> auto& { return c.engine.optimizer_threads; }, 0, 4096)},
    {"optimizer.pin", "Each of these threads to a CPU of its own while it works, physical cores first.",
     boolean([](auto& c) -> auto& { return c.engine.pin_optimizer; })},

    {"device.kind",
     "What computes; auto takes a GPU where the build has CUDA kernels, else the host (the CPU).",
     word(
         [](auto& c) -> auto& { return c.engine.device; }, kDevices)},
    {"device.memory", "Device memory that the run may use.",
     bytes(
         [](auto& c) -> auto& { return c.engine.device_memory; }, 1 << 20)},

    {"offload.weights", "Tier of the compute weights.",
     word(
         [](auto& c) -> auto& { return c.engine.placement.weights; }, kTiers)},
    {"offload.optimizer", "Tier of master weights and moments.",
     word(
         [](auto& c) -> auto& { return c.engine.placement.optimizer; }, kTiers)},
    {"offload.activations", "Tier of the activation checkpoints.",
     word(
         [](auto& c) -> auto& { return c.engine.placement.activations; }, kTiers)},
    {"offload.gradients",
     "Tier of gradients from backward to step; auto: device with the optimizer there, else host if it fits, "
     "else nvme.",
     kGradients},
    {"offload.host_memory", "Pinned host memory that the run may use.",
     bytes(
         [](auto& c) -> auto& { return c.engine.host_memory; }, 1 << 20)},
    {"offload.prefetch_units", "Units gathered ahead of need.",
     integer(
         [](auto& c) -> auto& { return c.engine.prefetch_units; }, 0, 1024)},
    {"offload.activation_slots", "Activation checkpoints on the device at a time when they live elsewhere.",
     integer(
         [](auto& c) -> auto& { return c.engine.activation_slots; }, 3, 1 << 16)},

    {"activations.recompute",
     "auto: intermediates are kept while the device budget holds them all; always: computed again in "
     "backward.",
     word(
         [](auto& c) -> auto& { return c.recompute; }, kRecompute)},

    {"nvme.paths", "Existing folders on the drives; units are dealt to them in turn.",
     text_list([](auto& c) -> auto& { return c.engine.nvme.paths; })},
    {"nvme.chunk_bytes", "Size of one I/O.",
     bytes(
         [](auto& c) -> auto& { return c.engine.nvme.chunk_bytes; }, 128 << 10, 256 << 20, nvme::kCrcBytes)},
    {"nvme.queue_depth", "I/Os in flight for each path and direction.",
     integer(
         [](auto& c) -> auto& { return c.engine.nvme.queue_depth; }, 1, 4096)},
    {"nvme.engine", "auto: io_uring, or posix where the kernel refuses it.",
     word(
         [](auto& c) -> auto& { return c.engine.nvme.engine; }, kNvmeEngines)},
    {"nvme.direct", "O_DIRECT; false goes through the page cache.",
     boolean([](auto& c) -> auto& { return c.engine.nvme.direct; })},
    {"nvme.verify", "Check the CRC32C of everything read.",
     boolean([](auto& c) -> auto& { return c.engine.nvme.verify; })},

    {"checkpoint.dir", "Folder of the saved runs.",
     TextField{[](Config& c) -> std::string& { return c.checkpoint_dir; }}},
    {"checkpoint.every", "Steps between saved runs; 0: only at the end.",
     integer(
         [](auto& c) -> auto& { return c.checkpoint_every; }, 0)},
    {"checkpoint.keep", "Newest saved runs that are kept; 0: all.",
     integer(
         [](auto& c) -> auto& { return c.checkpoint_keep; }, 0, 1 << 30)},

    {"log.dir", "Folder of metrics.jsonl.", TextField{[](Config& c) -> std::string& { return c.log_dir; }}},
};

struct TableDoc {
  std::string_view table, doc;
};
constexpr TableDoc kTables[] = {
    {"model", "The transformer."},
    {"data", "What it reads."},
    {"train", "How long and in what batches."},
    {"optimizer", "The update and its schedule."},
    {"device", "What computes, and in how much memory."},
    {"offload", "On which tier each kind of state lives, and how far ahead it is moved."},
    {"activations", "What backward finds and what it computes again."},
    {"nvme", "Drives; used when something is placed on nvme."},
    {"checkpoint", "Saved runs."},
    {"log", "Records of the run."},
};

}  // namespace

std::span<const Key> config_keys() {
  return kKeys;
}

std::string_view table_doc(std::string_view table) {
  for (const TableDoc& entry : kTables) {
    if (entry.table == table) return entry.doc;
  }
  return {};
}

}  // namespace headrace::cli

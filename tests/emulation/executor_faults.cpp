// SPDX-License-Identifier: Apache-2.0
// What the executor says when a kernel breaks a rule, and how the kernel is left.
#include <cstdlib>
#include <cstring>

#include "tests/emulation/executor.h"

namespace headrace::emulation {
namespace {

std::string extents_text(const uint3& n) {
  std::string text("(");
  text += std::to_string(n.x) + "," + std::to_string(n.y) + "," + std::to_string(n.z) + ")";
  return text;
}

std::string place_text(const Site& at) {
  const char* const file = std::strrchr(at.file_name(), '/');
  return std::string(file ? file + 1 : at.file_name()) + ":" + std::to_string(at.line()) + " in " +
         at.function_name();
}

/// "Params = {float*, long int}" of the launch function's signature.
std::string parameters_text(const std::string& signature) {
  const size_t begin = signature.find("Params = {");
  if (begin == std::string::npos) return "";
  const size_t open = signature.find('{', begin), close = signature.find('}', open);
  return ", parameters (" + signature.substr(open + 1, close - open - 1) + ")";
}

}  // namespace

std::string Executor::thread_text(unsigned thread) const {
  return "thread " + extents_text(threads_[thread].index);
}

std::string Executor::meeting_text(unsigned thread, const char* what, const Site& at) const {
  return thread_text(thread) + " at " + what + " (" + place_text(at) + ")";
}

void Executor::describe(const std::string& problem) {
  fault_ = problem + "; block " + extents_text(blockIdx) + " of a kernel with grid " +
           extents_text(launch_->grid) + ", block " + extents_text(launch_->block) + ", " +
           std::to_string(launch_->shared_bytes) + " bytes of shared memory" +
           parameters_text(launch_->signature);
}

void Executor::describe_split(const Meeting& meeting, const std::string& other) {
  const char* const scope = &meeting == &barrier_ ? "the threads of a block" : "the lanes of a warp";
  describe(std::string(scope) + " do not meet: " +
           meeting_text(meeting.first_thread, meeting.what, meeting.at) + ", but " + other);
}

void Executor::describe_left_alone(const char* what, Site at) {
  describe("the threads of a block do not meet: " + meeting_text(current_, what, at) + ", but " +
           std::to_string(exited_) + " threads have ended");
}

void Executor::fault(const char* what, Site at) {
  describe(std::string(what) + ": " + thread_text(current_) + " (" + place_text(at) + ")");
  abandon();
}

void Executor::incomplete_warp(const Warp& warp, const char* what, unsigned mask, Site at) {
  describe("the lanes of a warp do not meet: " + meeting_text(current_, what, at) + ", but " +
           (mask != ~0u            ? std::string("the mask does not name all 32 lanes")
            : warp.lanes != kLanes ? "the warp has only " + std::to_string(warp.lanes) + " lanes"
                                   : std::to_string(warp.exited) + " lanes have ended"));
  abandon();
}

/// Every thread that is left waits: some at the barrier, others with their warp.
void Executor::stuck() {
  const Meeting* waiting = nullptr;
  for (const Warp& warp : warps_)
    if (!waiting && warp.lanes > 0 && warp.meeting.arrived > 0) waiting = &warp.meeting;
  if (!waiting || barrier_.arrived == 0) std::abort();  // the executor itself is wrong
  describe_split(barrier_, meeting_text(waiting->first_thread, waiting->what, waiting->at));
  abandon();
}

void Executor::abandon() {
  switch_fiber(*threads_[current_].fiber, main_);
  std::abort();  // nobody comes back
}

}  // namespace headrace::emulation

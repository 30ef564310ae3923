// A second device for PyTorch on a machine without one: its memory is the host's, its copies are as late as they may be.
//
// An operation runs when it is called, after all that its stream was given before.  A copy between the device and pinned
// host memory that need not block is only queued; it runs when a stream or an event is waited for that it precedes.
// So code that reads too early, or writes again too early, is wrong each time, and not once in a thousand runs.
// `fail` makes the device fail as a CUDA device does: from then on whoever waits for it gets the error.

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>
#include <torch/library.h>

#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;
using c10::StreamId;

constexpr auto TYPE = DeviceType::PrivateUse1;

// ---- streams: queues that run when they are waited for -------------------------------------------------------------

struct Queue {
  std::deque<std::function<void()>> waiting;
  int64_t given = 0, done = 0;
};

struct Event {
  StreamId stream = 0;
  int64_t after = 0;
};

std::recursive_mutex lock;
std::map<StreamId, Queue> queues;
StreamId newest = 0;
std::string failure;
int64_t deferred = 0;  // copies that were queued
thread_local StreamId current = 0;

void give(StreamId stream, std::function<void()> task) {
  queues[stream].waiting.push_back(std::move(task));
  queues[stream].given++;
}

void run_until(StreamId stream, int64_t number) {
  while (queues[stream].done < number) {
    auto task = std::move(queues[stream].waiting.front());
    queues[stream].waiting.pop_front();
    queues[stream].done++;
    task();
  }
}

void run_all(StreamId stream) {
  run_until(stream, queues[stream].given);
}

void check() {
  if (!failure.empty())
    throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, 1, failure);
}

// ---- memory ---------------------------------------------------------------------------------------------------------

std::set<const void*> pinned;
int64_t allocated = 0, limit = INT64_MAX;

struct DeviceAllocator final : c10::Allocator {
  static void release(void* block) {
    std::lock_guard guard(lock);
    if (block) allocated -= *static_cast<int64_t*>(block);
    std::free(block);
  }
  c10::DataPtr allocate(size_t size) override {
    std::lock_guard guard(lock);
    TORCH_CHECK_WITH(OutOfMemoryError, allocated + static_cast<int64_t>(size) <= limit, "deferred device out of memory");
    auto* block = static_cast<char*>(std::malloc(size + 64));
    *reinterpret_cast<int64_t*>(block) = static_cast<int64_t>(size);
    allocated += static_cast<int64_t>(size);
    return {block + 64, block, &release, Device(TYPE, 0)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t count) const override { std::memcpy(to, from, count); }
};

struct PinnedAllocator final : c10::Allocator {
  static void release(void* block) {
    std::lock_guard guard(lock);
    pinned.erase(block);
    std::free(block);
  }
  c10::DataPtr allocate(size_t size) override {
    std::lock_guard guard(lock);
    auto* block = std::malloc(size + 1);
    pinned.insert(block);
    return {block, block, &release, Device(DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t count) const override { std::memcpy(to, from, count); }
};

DeviceAllocator device_memory;
PinnedAllocator pinned_memory;

bool is_pinned(const void* data) {
  std::lock_guard guard(lock);
  return pinned.count(data) > 0;
}

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &device_memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   at::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &device_memory,
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           at::dtype_or_default(dtype));
}

// The same memory as another tensor, of the host.
at::Tensor on_host(const at::Tensor& tensor) {
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
}

// Who holds our lock must not wait for Python's: references to what Python may know are taken before, and go after.
at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  const auto& host = source.device().type() == TYPE ? target : source;
  const bool is_late = non_blocking && host.device().is_cpu() && is_pinned(host.storage().data());
  auto copy = [from = on_host(source), to = on_host(target), held = source.storage(), also = target.storage()] {
    at::AutoDispatchBelowADInplaceOrView no_autograd;
    to.copy_(from);
  };
  {
    std::lock_guard guard(lock);
    check();
    if (is_late) {
      deferred++;
      give(current, std::move(copy));
    } else {
      run_all(current);
      check();
    }
  }
  if (!is_late) copy();
  return target;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  return copy_from(source, target, false);
}

// ---- operations: those of the host, on the same memory --------------------------------------------------------------

void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  std::map<const c10::TensorImpl*, at::Tensor> given;  // what the operation may return, by what it is called with
  auto lower = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.device().type() != TYPE) return tensor;
    auto host = tensor.numel() ? on_host(tensor) : at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
    given[host.unsafeGetTensorImpl()] = tensor;
    return host;
  };
  auto moved = [](const at::Tensor& tensor) {
    auto made = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(Device(TYPE, 0)));
    on_host(made).copy_(tensor);
    return made;
  };
  auto raise = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    auto found = given.find(tensor.unsafeGetTensorImpl());
    if (found == given.end()) return moved(tensor);
    if (found->second.sizes() != tensor.sizes()) {  // an empty one that was given to be filled
      auto made = moved(tensor);
      found->second.unsafeGetTensorImpl()->set_storage_keep_dtype(made.storage());
      found->second.unsafeGetTensorImpl()->set_sizes_and_strides(made.sizes(), made.strides());
    }
    return found->second;
  };
  const auto& schema = op.schema();
  const auto count = schema.arguments().size();
  {
    std::lock_guard guard(lock);
    check();
    run_all(current);
    check();
  }
  for (auto& value : torch::jit::last(*stack, count)) {
    auto& mutable_value = const_cast<c10::IValue&>(value);
    if (value.isTensor()) {
      mutable_value = lower(value.toTensor());
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> lowered;
      for (const auto& one : value.toTensorVector()) lowered.push_back(lower(one));
      mutable_value = c10::IValue(lowered);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> lowered;
      for (const auto& one : value.toOptionalTensorList()) {
        std::optional<at::Tensor> held = one;
        lowered.push_back(held ? std::optional(lower(*held)) : held);
      }
      mutable_value = c10::IValue(lowered);
    } else if (value.isDevice()) {
      mutable_value = c10::IValue(Device(at::kCPU));
    }
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  for (auto& value : torch::jit::last(*stack, schema.returns().size())) {
    auto& mutable_value = const_cast<c10::IValue&>(value);
    if (value.isTensor()) {
      mutable_value = raise(value.toTensor());
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> raised;
      for (const auto& one : value.toTensorVector()) raised.push_back(raise(one));
      mutable_value = c10::IValue(raised);
    }
  }
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  KERNEL_PRIVATEUSEONE(linear, lower_precision_fp)
}

// ---- what torch asks of a device ------------------------------------------------------------------------------------

struct DeviceGuard final : c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return TYPE; }
  Device exchangeDevice(Device) const override { return {TYPE, 0}; }
  Device getDevice() const override { return {TYPE, 0}; }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}
  DeviceIndex deviceCount() const noexcept override { return 1; }

  static Stream stream(StreamId id) { return Stream(Stream::UNSAFE, Device(TYPE, 0), id); }
  Stream getStream(Device) const override { return stream(current); }
  Stream getDefaultStream(Device) const override { return stream(0); }
  Stream getNewStream(Device, int) const override {
    std::lock_guard guard(lock);
    return stream(++newest);
  }
  Stream getStreamFromGlobalPool(Device device, bool) const override { return getNewStream(device, 0); }
  Stream exchangeStream(Stream other) const override {
    auto before = stream(current);
    current = other.id();
    return before;
  }
  bool queryStream(const Stream& stream) const override {
    std::lock_guard guard(lock);
    check();
    return queues[stream.id()].waiting.empty();
  }
  void synchronizeStream(const Stream& stream) const override {
    std::lock_guard guard(lock);
    run_all(stream.id());
    check();
  }
  void synchronizeDevice(DeviceIndex) const override {
    std::lock_guard guard(lock);
    for (StreamId id = 0; id <= newest; id++) run_all(id);
    check();
  }

  void record(void** event, const Stream& stream, DeviceIndex, c10::EventFlag) const override {
    std::lock_guard guard(lock);
    if (!*event) *event = new Event;
    *static_cast<Event*>(*event) = {stream.id(), queues[stream.id()].given};
  }
  void block(void* event, const Stream& stream) const override {
    std::lock_guard guard(lock);
    if (event) give(stream.id(), [held = *static_cast<Event*>(event)] { run_until(held.stream, held.after); });
  }
  bool queryEvent(void* event) const override {
    std::lock_guard guard(lock);
    check();
    return !event || queues[static_cast<Event*>(event)->stream].done >= static_cast<Event*>(event)->after;
  }
  void synchronizeEvent(void* event) const override {
    std::lock_guard guard(lock);
    if (event) run_until(static_cast<Event*>(event)->stream, static_cast<Event*>(event)->after);
    check();
  }
  void destroyEvent(void* event, DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, DeviceGuard);
REGISTER_ALLOCATOR(TYPE, &device_memory);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(DeviceIndex) const override {}
  DeviceIndex exchangeDevice(DeviceIndex) const override { return 0; }
  DeviceIndex maybeExchangeDevice(DeviceIndex) const override { return 0; }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory; }
};

Hooks hooks;

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  at::RegisterPrivateUse1HooksInterface(&hooks);
  m.def("fail", [](const std::string& reason) {
    std::lock_guard guard(lock);
    give(current, [reason] { failure = reason; });
  });
  m.def("recover", [] { failure.clear(); });
  m.def("deferred_copies", [] { return deferred; });
  m.def("allocated_bytes", [] { return allocated; });
  m.def("limit_bytes", [](int64_t bytes) { limit = bytes; });
}

// A graph of operations that cuDNN compiles into kernels, and its plan.
#include "backends/cuda/cudnn_graph.h"

#include <fmt/format.h>

#include "core/error.h"

namespace rooflm::backends::cuda {
namespace {

/// Number of cuDNN's proposals that are tried.
constexpr std::size_t kCandidates = 16;

CudnnExtents dense(const CudnnExtents& extents) {
  CudnnExtents strides{};
  std::int64_t stride = 1;
  for (std::size_t i = extents.size(); i-- > 0;) {
    strides.at(i) = stride;
    stride *= extents.at(i);
  }
  return strides;
}

/// cuDNN's value ids start at 1.
std::int64_t id_of(CudnnValue value) { return static_cast<std::int64_t>(value.index) + 1; }

/// The engine configurations that a heuristic proposes, best first.
std::vector<CudnnDescriptor> propose(const CudnnLibrary& library, const CudnnDescriptor& graph,
                                     const CudnnDescriptor& device, cudnnBackendHeurMode_t mode) {
  CudnnDescriptor heuristic(library, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
  heuristic.finalize("looking for engines");
  std::vector<CudnnDescriptor> configurations;
  std::array<cudnnBackendDescriptor_t, kCandidates> found{};
  for (cudnnBackendDescriptor_t& place : found) {
    configurations.emplace_back(library, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    place = configurations.back().get();
  }
  std::int64_t count = 0;
  library.check(
      library.get_attribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                            static_cast<std::int64_t>(found.size()), &count, found.data()),
      "asking for engines");
  while (configurations.size() > static_cast<std::size_t>(count)) configurations.pop_back();
  return configurations;
}

/// "cudnn engine 4": the engine of a proposed configuration.
std::string engine_of(const CudnnLibrary& library, const CudnnDescriptor& configuration) {
  CudnnDescriptor engine(library, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t place = engine.get();
  std::int64_t count = 0;
  std::int64_t number = 0;
  const auto found = library.get_attribute(configuration.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                           CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &place);
  if (found != CUDNN_STATUS_SUCCESS ||
      library.get_attribute(engine.get(), CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count,
                            &number) != CUDNN_STATUS_SUCCESS) {
    return "cudnn engine";
  }
  return fmt::format("cudnn engine {}", number);
}

}  // namespace

CudnnDescriptor::CudnnDescriptor(const CudnnLibrary& library, cudnnBackendDescriptorType_t type)
    : library_(&library) {
  library.check(library.create_descriptor(type, &descriptor_), "creating a descriptor");
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                          std::size_t count, const void* values) {
  library_->check(library_->set_attribute(descriptor_, name, type, static_cast<std::int64_t>(count), values),
                  "describing a graph");
}

void CudnnDescriptor::finalize(std::string_view doing) {
  library_->check(library_->finalize(descriptor_), doing);
}

CudnnDescriptor cudnn_device(const CudnnLibrary& library, int index) {
  CudnnDescriptor device(library, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  device.set(CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, std::int32_t{index});
  device.finalize("asking for the device's properties");
  return device;
}

CudnnPlan::CudnnPlan(const CudnnLibrary& library, CudnnDescriptor plan)
    : library_(&library), plan_(std::move(plan)) {
  std::int64_t bytes = 0;
  std::int64_t count = 0;
  library.check(library.get_attribute(plan_.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                                      1, &count, &bytes),
                "asking for a workspace's size");
  workspace_bytes_ = static_cast<std::size_t>(bytes);
}

void CudnnPlan::submit(cudnnHandle_t handle, std::span<const Binding> bindings, void* workspace) const {
  std::vector<std::int64_t> ids = scalar_ids_;
  std::vector<void*> data;
  data.reserve(ids.size() + bindings.size());
  for (const float& scalar : scalars_) data.push_back(const_cast<float*>(&scalar));  // NOLINT: only read
  for (const Binding& binding : bindings) {
    ids.push_back(id_of(binding.value));
    data.push_back(binding.data);
  }
  CudnnDescriptor pack(*library_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids);
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, data.size(), data.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
  pack.finalize("binding operands");
  library_->check(library_->execute(handle, plan_.get(), pack.get()), "running a plan");
}

CudnnValue CudnnGraph::add(cudnnDataType_t type, const CudnnExtents& extents, const CudnnExtents& strides,
                           Place place, std::int64_t alignment) {
  CudnnDescriptor tensor(*library_, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const CudnnValue value{values_.size()};
  const std::int64_t id = id_of(value);
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, extents);
  tensor.set(CUDNN_ATTR_TENSOR_STRIDES, strides);
  tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
  tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, alignment);
  tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, place == Place::between);
  tensor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, place == Place::host);
  tensor.finalize("describing a tensor");
  values_.push_back({std::move(tensor), extents});
  return value;
}

CudnnValue CudnnGraph::in_memory(cudnnDataType_t type, const CudnnExtents& extents,
                                 const CudnnExtents& strides, std::int64_t alignment) {
  return add(type, extents, strides, Place::memory, alignment);
}
CudnnValue CudnnGraph::between(cudnnDataType_t type, const CudnnExtents& extents) {
  return add(type, extents, dense(extents), Place::between);
}
CudnnValue CudnnGraph::between(cudnnDataType_t type, const CudnnExtents& extents,
                               const CudnnExtents& strides) {
  return add(type, extents, strides, Place::between);
}

CudnnValue CudnnGraph::constant(float number) {
  constexpr CudnnExtents kOne{1, 1, 1, 1};
  const CudnnValue value = add(CUDNN_DATA_FLOAT, kOne, kOne, Place::host);
  scalar_ids_.push_back(id_of(value));
  scalars_.push_back(number);
  return value;
}

CudnnDescriptor& CudnnGraph::add_operation(cudnnBackendDescriptorType_t type) {
  return operations_.emplace_back(*library_, type);
}

void CudnnGraph::matmul(CudnnValue a, CudnnValue b, CudnnValue c, std::span<const Length> lengths) {
  CudnnDescriptor kind(*library_, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  kind.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  kind.finalize("describing a matmul");
  CudnnDescriptor& operation = add_operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, at(a));
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, at(b));
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, at(c));
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
  for (const Length& l : lengths) operation.set(l.extent, at(l.length));
  operation.finalize("adding a matmul");
}

CudnnDescriptor CudnnGraph::make_pointwise(cudnnPointwiseMode_t mode, std::int64_t axis) const {
  const bool is_boolean = (mode >= CUDNN_POINTWISE_CMP_EQ && mode <= CUDNN_POINTWISE_CMP_LE) ||
                          mode == CUDNN_POINTWISE_LOGICAL_AND;
  CudnnDescriptor kind(*library_, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  kind.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
  kind.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
           is_boolean ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT);
  if (mode == CUDNN_POINTWISE_GEN_INDEX) kind.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis);
  kind.finalize("describing an elementwise operation");
  return kind;
}

void CudnnGraph::pointwise(cudnnPointwiseMode_t mode, std::initializer_list<CudnnValue> operands,
                           CudnnValue y) {
  static constexpr std::array kPlaces = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                                         CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                         CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
  const CudnnDescriptor kind = make_pointwise(mode, 0);
  CudnnDescriptor& operation = add_operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
  std::size_t place = 0;
  for (const CudnnValue operand : operands) operation.set(kPlaces.at(place++), at(operand));
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, at(y));
  operation.finalize("adding an elementwise operation");
}

CudnnValue CudnnGraph::pointwise(cudnnPointwiseMode_t mode, std::initializer_list<CudnnValue> operands) {
  const CudnnValue y = between(CUDNN_DATA_FLOAT, extents(*operands.begin()));
  pointwise(mode, operands, y);
  return y;
}

CudnnValue CudnnGraph::index(CudnnValue x, std::int64_t axis) {
  const CudnnDescriptor kind = make_pointwise(CUDNN_POINTWISE_GEN_INDEX, axis);
  const CudnnValue y = between(CUDNN_DATA_INT32, extents(x));
  CudnnDescriptor& operation = add_operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, at(x));
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, at(y));
  operation.finalize("adding an index");
  return y;
}

void CudnnGraph::reduce(cudnnReduceTensorOp_t operation, CudnnValue x, CudnnValue y) {
  CudnnDescriptor kind(*library_, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  kind.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, operation);
  kind.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  kind.finalize("describing a reduction");
  CudnnDescriptor& added = add_operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  added.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, at(x));
  added.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, at(y));
  added.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
  added.finalize("adding a reduction");
}

void CudnnGraph::reshape(CudnnValue x, CudnnValue y) {
  CudnnDescriptor& operation = add_operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, at(x));
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, at(y));
  operation.finalize("adding a change of shape");
}

CudnnPlan CudnnGraph::plan(const CudnnDescriptor& device) const {
  std::vector<cudnnBackendDescriptor_t> operations;
  operations.reserve(operations_.size());
  for (const CudnnDescriptor& operation : operations_) operations.push_back(operation.get());
  CudnnDescriptor graph(*library_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations.size(),
            operations.data());
  graph.finalize("building a graph");
  std::string reason = "no engine takes this graph";
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    for (const CudnnDescriptor& configuration : propose(*library_, graph, device, mode)) {
      CudnnDescriptor plan(*library_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device);
      try {
        plan.finalize("compiling a graph");
      } catch (const core::Unavailable& error) {
        reason = error.what();
        continue;
      }
      CudnnPlan compiled(*library_, std::move(plan));
      compiled.scalar_ids_ = scalar_ids_;
      compiled.scalars_ = scalars_;
      compiled.engine_ = engine_of(*library_, configuration);
      return compiled;
    }
  }
  throw core::Unavailable(reason);
}

}  // namespace rooflm::backends::cuda

"""The parts of TFLite's schema that are read: tables with their fields in the order of slots, and numbers of operators,
types and options.

Source: schema.fbs of TensorFlow Lite, version 3a and what LiteRT appended. Tests compare it with LiteRT's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

IDENTIFIER = b"TFL3"


class TableField(NamedTuple):
    """type: of a number, "string", or of a table. default: of a number."""

    slot: int
    type: str
    is_vector: bool
    default: int


def _fields(text: str) -> Iterator[tuple[str, TableField]]:
    """Fields as "name:type=default"; "-" for a slot that is not read, "[type]" for a vector."""
    for slot, part in enumerate(text.split()):
        if part != "-":
            name, _, kind = part.partition(":")
            kind, _, default = kind.partition("=")
            yield name, TableField(slot, kind.strip("[]"), kind.startswith("["), int(default or 0))


_TABLES = {
    "Model": "version:uint operator_codes:[OperatorCode] subgraphs:[SubGraph] - buffers:[Buffer]",
    "OperatorCode": "deprecated_builtin_code:byte custom_code:string version:int=1 builtin_code:int",
    "SubGraph": "tensors:[Tensor] inputs:[int] outputs:[int] operators:[Operator] name:string",
    "Buffer": "data:[ubyte] offset:ulong size:ulong",
    "Tensor": "shape:[int] type:byte buffer:uint name:string quantization:Quantization is_variable:bool "
    "sparsity:Sparsity shape_signature:[int]",
    "Quantization": "- - scale:[float] zero_point:[long] - - quantized_dimension:int",
    "Sparsity": "traversal_order:[int] block_map:[int] dim_metadata:[DimensionMetadata]",
    "DimensionMetadata": "format:byte dense_size:int array_segments_type:ubyte array_segments:Indices "
    "array_indices_type:ubyte array_indices:Indices",
    "Int32Vector": "values:[int]",
    "Uint16Vector": "values:[ushort]",
    "Uint8Vector": "values:[ubyte]",
    "Operator": "opcode_index:uint inputs:[int] outputs:[int] builtin_options_type:ubyte builtin_options:Options "
    "custom_options:[ubyte] - - - - - builtin_options_2_type:ubyte builtin_options_2:Options",
    "AddOptions": "fused_activation_function:byte",
    "ArgMaxOptions": "output_type:byte",
    "ArgMinOptions": "output_type:byte",
    "BatchMatMulOptions": "adj_x:bool adj_y:bool",
    "BucketizeOptions": "boundaries:[float]",
    "CallOnceOptions": "init_subgraph_index:int",
    "CastOptions": "in_data_type:byte out_data_type:byte",
    "ConcatenationOptions": "axis:int fused_activation_function:byte",
    "Conv2DOptions": "padding:byte stride_w:int stride_h:int fused_activation_function:byte dilation_w_factor:int=1 "
    "dilation_h_factor:int=1",
    "Conv3DOptions": "padding:byte stride_d:int stride_w:int stride_h:int fused_activation_function:byte "
    "dilation_d_factor:int=1 dilation_w_factor:int=1 dilation_h_factor:int=1",
    "CumsumOptions": "exclusive:bool reverse:bool",
    "DepthToSpaceOptions": "block_size:int",
    "DepthwiseConv2DOptions": "padding:byte stride_w:int stride_h:int depth_multiplier:int "
    "fused_activation_function:byte dilation_w_factor:int=1 dilation_h_factor:int=1",
    "DivOptions": "fused_activation_function:byte",
    "FakeQuantOptions": "min:float max:float num_bits:int narrow_range:bool",
    "FullyConnectedOptions": "fused_activation_function:byte weights_format:byte keep_num_dims:bool",
    "GatherOptions": "axis:int batch_dims:int",
    "GeluOptions": "approximate:bool",
    "IfOptions": "then_subgraph_index:int else_subgraph_index:int",
    "L2NormOptions": "fused_activation_function:byte",
    "LeakyReluOptions": "alpha:float",
    "LocalResponseNormalizationOptions": "radius:int bias:float alpha:float beta:float",
    "MirrorPadOptions": "mode:byte",
    "MulOptions": "fused_activation_function:byte",
    "OneHotOptions": "axis:int",
    "PackOptions": "values_count:int axis:int",
    "Pool2DOptions": "padding:byte stride_w:int stride_h:int filter_width:int filter_height:int "
    "fused_activation_function:byte",
    "ReducerOptions": "keep_dims:bool",
    "ReshapeOptions": "new_shape:[int]",
    "ResizeBilinearOptions": "- - align_corners:bool half_pixel_centers:bool",
    "ResizeNearestNeighborOptions": "align_corners:bool half_pixel_centers:bool",
    "ShapeOptions": "out_type:byte",
    "SoftmaxOptions": "beta:float",
    "SpaceToDepthOptions": "block_size:int",
    "SplitOptions": "num_splits:int",
    "SplitVOptions": "num_splits:int",
    "SqueezeOptions": "squeeze_dims:[int]",
    "StridedSliceOptions": "begin_mask:int end_mask:int ellipsis_mask:int new_axis_mask:int shrink_axis_mask:int "
    "offset:bool",
    "StableHLOCompositeOptions": "name:string decomposition_subgraph_index:int composite_attributes:[ubyte]",
    "StablehloReduceWindowOptions": "window_dimensions:[long] window_strides:[long] base_dilations:[long] "
    "window_dilations:[long] padding:[long] body_subgraph_index:int",
    "SubOptions": "fused_activation_function:byte",
    "TransposeConvOptions": "padding:byte stride_w:int stride_h:int fused_activation_function:byte",
    "UnidirectionalSequenceLSTMOptions": "fused_activation_function:byte cell_clip:float proj_clip:float "
    "time_major:bool",
    "UnpackOptions": "num:int axis:int",
    "VarHandleOptions": "container:string shared_name:string",
    "WhileOptions": "cond_subgraph_index:int body_subgraph_index:int",
}
TABLES: dict[str, dict[str, TableField]] = {name: dict(_fields(text)) for name, text in _TABLES.items()}

# Numbers of the union of options.
OPTIONS = {
    **{1: "Conv2DOptions", 2: "DepthwiseConv2DOptions", 5: "Pool2DOptions", 8: "FullyConnectedOptions"},
    **{9: "SoftmaxOptions", 10: "ConcatenationOptions", 11: "AddOptions", 12: "L2NormOptions"},
    **{13: "LocalResponseNormalizationOptions", 15: "ResizeBilinearOptions", 17: "ReshapeOptions"},
    **{19: "SpaceToDepthOptions", 21: "MulOptions", 23: "GatherOptions", 27: "ReducerOptions", 28: "SubOptions"},
    **{29: "DivOptions", 30: "SqueezeOptions", 32: "StridedSliceOptions", 35: "SplitOptions", 37: "CastOptions"},
    **{40: "ArgMaxOptions", 49: "TransposeConvOptions", 55: "ShapeOptions", 57: "ArgMinOptions"},
    **{58: "FakeQuantOptions", 59: "PackOptions", 61: "OneHotOptions", 64: "UnpackOptions"},
    **{71: "UnidirectionalSequenceLSTMOptions", 74: "ResizeNearestNeighborOptions", 75: "LeakyReluOptions"},
    **{
        77: "MirrorPadOptions",
        79: "SplitVOptions",
        92: "IfOptions",
        93: "WhileOptions",
        94: "DepthToSpaceOptions",
        101: "BatchMatMulOptions",
    },
    **{
        102: "CumsumOptions",
        103: "CallOnceOptions",
        106: "Conv3DOptions",
        111: "VarHandleOptions",
        115: "BucketizeOptions",
        116: "GeluOptions",
    },
}
OPTIONS_2 = {13: "StablehloReduceWindowOptions", 21: "StableHLOCompositeOptions"}  # of the second union

TYPES = (  # of elements, by number
    *("float32", "float16", "int32", "uint8", "int64", "string", "bool", "int16", "complex64", "int8", "float64"),
    *("complex128", "uint64", "resource", "variant", "uint32", "uint16", "int4", "bfloat16", "int2", "uint4"),
)
PADDINGS = ("SAME_UPPER", "VALID")  # in ONNX's words
ACTIVATIONS = ("", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")

# Builtin operators, by number.
_OPERATORS = """
ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP FLOOR
FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION
LSTM MAX_POOL_2D MUL RELU RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH
CONCAT_EMBEDDINGS SKIP_GRAM CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER
BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE
BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM
ARG_MAX MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN TRANSPOSE_CONV SPARSE_TO_DENSE
TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK
LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD
RANGE RESIZE_NEAREST_NEIGHBOR LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N
GATHER_ND COS WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE
NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM BATCH_MATMUL
PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG REAL COMPLEX_ABS HASHTABLE
HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE
ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM MULTINOMIAL GELU
DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2
UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR RIGHT_SHIFT STABLEHLO_LOGISTIC STABLEHLO_ADD STABLEHLO_DIVIDE
STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM STABLEHLO_RESHAPE STABLEHLO_CLAMP STABLEHLO_CONCATENATE
STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CONVOLUTION STABLEHLO_SLICE STABLEHLO_CUSTOM_CALL STABLEHLO_REDUCE
STABLEHLO_ABS STABLEHLO_AND STABLEHLO_COSINE STABLEHLO_EXPONENTIAL STABLEHLO_FLOOR STABLEHLO_LOG STABLEHLO_MINIMUM
STABLEHLO_NEGATE STABLEHLO_OR STABLEHLO_POWER STABLEHLO_REMAINDER STABLEHLO_RSQRT STABLEHLO_SELECT
STABLEHLO_SUBTRACT STABLEHLO_TANH STABLEHLO_SCATTER STABLEHLO_COMPARE STABLEHLO_CONVERT STABLEHLO_DYNAMIC_SLICE
STABLEHLO_DYNAMIC_UPDATE_SLICE STABLEHLO_PAD STABLEHLO_IOTA STABLEHLO_DOT_GENERAL STABLEHLO_REDUCE_WINDOW
STABLEHLO_SORT STABLEHLO_WHILE STABLEHLO_GATHER STABLEHLO_TRANSPOSE DILATE STABLEHLO_RNG_BIT_GENERATOR
REDUCE_WINDOW STABLEHLO_COMPOSITE STABLEHLO_SHIFT_LEFT STABLEHLO_CBRT STABLEHLO_CASE
"""
OPERATORS = tuple(_OPERATORS.split())
CUSTOM = OPERATORS.index("CUSTOM")

/* Names of @NAME@_data.h before bundles had names, for programs that use them. */
#include "@NAME@_data.h" /* refuses another bundle */
#ifndef MODEL_DATA_H
#define MODEL_DATA_H

#define model_data @NAME@_data
@NAMES@

#endif

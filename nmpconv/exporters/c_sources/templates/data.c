#include "@NAME@_data.h"

@MACRO@_ALIGNED const unsigned char @NAME@_data[@MACRO@_BYTES] = {
@ROWS@
};

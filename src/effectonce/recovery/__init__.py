"""After a call: settling doubts, sweeping old records, writing what a store could not take."""

"""Kernels of the layers: per operation one dispatch, a plain torch version, and faster C and Triton kernels.

    linear.py         x Wᵀ + b                         prepacked weights and C matmuls (CPU), FP8 matmuls (GPU)
    attention.py      softmax(Q Kᵀ / √d) V             C kernels (CPU), Triton decode attention (GPU), torch's SDPA
    cross_entropy.py  the loss of hidden vectors       chunks; fused softmax and gradient in C and Triton
    top_k.py          the best k of a row, stable      Triton (GPU)
    log_softmax.py    log-probabilities                C (CPU)
    fused_argmax.py   argmax and its log-probability   Triton (GPU)
    projection.py     logits of the vocabulary         a transposed matmul for odd vocabulary sizes (GPU)
    recurrent.py      LSTM, GRU, Elman                 cuDNN, fused cells (GPU)

A kernel stays only while leaving it out slows an end-to-end benchmark down by 5 % (`python -m benchmarks ablation`).
`MALLANG_KERNELS=off` runs the plain versions alone, `MALLANG_KERNELS=-top-k` all kernels but one. Neither changes
results beyond rounding, so dropout draws the same random numbers under `off`.
"""

// The words of the page in both languages.

export const WORDS = {
  en: {
    other: "한국어", theme: "Light / dark", keys: "Keys", input: "input", output: "output", run: "run", text: "text", score: "log-probability",
    facts: run => `${run.model}, ${run.task.replaceAll("_", " ")}, ${run.parameters.toLocaleString("en")} parameters`,
    unknown: keys => `The address names what this page does not know: ${keys.join(", ")}.`, layer: "layer", head: "head", mean: "mean of the heads", all: "all steps", save: "Save:",
    window: (from, to, of) => `Tokens ${from.toLocaleString("en")} to ${to.toLocaleString("en")} of ${of.toLocaleString("en")} are shown; --start shows others. Weights within a window need not sum to 1.`,
    tabs: {
      attention: "Attention", alignment: "Alignment", next: "Next token", search: "Search tree", labels: "Answer", highlights: "Highlights", image: "Image",
      compare: "Compare", numbers: "Numbers", gates: "Gates", vectors: "Vectors", positions: "Positions", training: "Training",
    },
    side: { source: "source", said: "token to predict", read: "token read" },
    layerName: { encoder: "encoder", decoder: "decoder", self: "self-attention", cross: "cross-attention", block: "layer" },
    attention: {
      help: "Every layer and head. Choose one; point at a token or a cell to see where it attends.", root: "√ scale (brings out small weights)",
      told: (query, key, weight) => `${query} attends to ${key} with ${weight}`, links: "Token links", table: "as a table",
      caution: "Attention says where information was fetched from, not what was done with it.",
      row: query => `${query} attends most to`, column: key => `${key} is attended to most by`,
    },
    alignment: {
      help: "Words of the source above, of the output below. A ribbon is as wide as its weight; the strongest link of each output word is solid.",
      threshold: "hide weights below", read: name => `read off ${name}`, told: (target, source, weight) => `${target} ← ${source}: ${weight}`, list: "Strongest links",
    },
    next: {
      help: "Choose a token to see what else the model considered there. The sliders renormalize the distribution as sampling does.",
      at: token => `In place of “${token}”`, temperature: "temperature", k: "top-k (0: all)", p: "top-p", others: count => `${count.toLocaleString("en")} others`,
      kept: (count, mass) => `${count.toLocaleString("en")} tokens can be drawn; they hold ${mass} of the distribution.`,
      beyond: "More tokens can be drawn than this file lists: their shares are right to within the last listed one.",
      surprisal: "Surprisal", bits: "bits", total: (bits, mean) => `${bits} bits in all, ${mean} bits per token`, prompt: "Pale tokens are the prompt.",
    },
    search: {
      help: "Every candidate of every step. ← and → walk the steps, Tab walks the candidates; choose one to see its path.", step: "steps shown", pruned: "show pruned candidates",
      facts: (method, count) => `${method}, ${count.toLocaleString("en")} candidates`, proven: "proven to be the best", unproven: "not proven to be the best",
      fates: {
        kept: "it was continued", ended: "it is a whole output", beam: "pruned: too many others scored higher", bound: "pruned: nothing that follows could still win",
        complete: "not continued: enough outputs were complete", limit: "not continued: it has the longest length allowed",
        budget: "not continued: the budget of the search was spent", seed: "not weighed: part of an output of the beam that the search began with",
      },
      told: (token, share, total, normalized, bound) => `${token}: probability ${share}, sum ${total}, normalized ${normalized}, no output that begins so above ${bound}`,
      hidden: count => `${count.toLocaleString("en")} candidates with lower scores are not shown.`, best: "best output",
    },
    labels: {
      help: "The probability of every label.", tags: "The tag of every word, and its probability.", answer: "The answer in its context.",
      roles: "Who does what to whom: a line per predicate.", noRoles: "There is no predicate in this text.",
      clusters: "Names, pronouns and nouns that mean the same.", noClusters: "Nothing is spoken of twice.",
      kinds: { probability: "The most probable candidates.", score: "The candidates with the highest scores; scores are no probabilities.", cosine: "How near, as a cosine." },
    },
    image: { help: "The image, then once for every word: bright where the word attended to it.", whole: "image", told: most => `its largest weight is ${most}` },
    highlights: { help: "The darker a word, the more the classifier attends to it; the bar is the weight of the sentence.", view: "view", told: (piece, weight) => `${piece}: ${weight}` },
    compare: {
      help: "Two runs on the same text. Words that only one of them has are marked; bars show what every token cost it.", with: "and", same: "Both give the same output.",
      differ: "The outputs differ.", sum: "Bits so far", difference: "Difference of attention", none: "These runs have no attention maps between the same tokens.",
      told: (query, key, one, two) => `${query} → ${key}: ${one} and ${two}`, cannot: "This run cannot read the text",
    },
    positions: {
      help: { sinusoidal: "Sinusoidal positions: sin and cos by turns, slower from left to right.", learned: "Learned positions.", rotary: "Rotary positions: the sine and cosine by which queries and keys are rotated." },
      shown: (rows, columns, size) => `${rows} positions × ${columns} dimensions, of ${size[0]} × ${size[1]}.`, map: "Positions", near: "Dot product of positions",
      told: (row, column, value) => `position ${row}, dimension ${column}: ${value}`, pair: (row, column, value) => `positions ${row} and ${column}: ${value}`,
      mix: "Mix of layers", layer: number => `layer ${number}`, scale: value => `scale γ = ${value}`,
    },
    training: { help: "The curves of training and validation.", metric: "metric", log: "logarithmic", step: "update", train: "training", valid: "validation", told: (name, step, value) => `${name}, update ${step}: ${value}` },
    gates: {
      help: "What the gates of a recurrent layer did at every token: the mean over its units, and every unit below.", layer: "layer", gate: "gate", mean: "Mean over units", units: "Every unit",
      names: { i: "input gate i", f: "forget gate f", o: "output gate o", g: "candidate g", c: "cell c", r: "reset gate r", z: "update gate z", n: "candidate n", h: "state h" },
      told: (token, name, value) => `${token}, ${name}: ${value}`, unit: number => `unit ${number}`,
      some: (shown, all) => `The first ${shown} of ${all} units; the means are those of all.`,
      kinds: { lstm: "c = f ∘ c before + i ∘ g, h = o ∘ tanh c.", gru: "h = (1 − z) ∘ n + z ∘ h before: z near 1 keeps the state, r near 0 forgets it in the candidate n.", tanh: "h = tanh(W x + U h before): this cell has no gates." },
    },
    vectors: {
      help: "Every point is a word in its sentence, in the plane of largest variance. Choose one to see its nearest neighbors.", layer: "layer", nearest: word => `Nearest to ${word}`,
      explained: (x, y) => `${x} and ${y} of the variance`, cosine: "cosine", find: "find a word", words: "Every point is a word of the vocabulary, in the plane of largest variance. Choose one to see its nearest neighbors.",
    },
    numbers: {
      help: "Attention with all its numbers. Space shows the next step; point at a cell to see how it was computed.", head: "head", next: "next step", previous: "previous step",
      scaled: value => `÷ √${value}`, from: "computed as", basic: "Basic self-attention, without parameters", one: number => `Head ${number}`, joined: "All heads", table: "as tables",
      steps: {
        x: ["X", "What the layer reads: a vector for every token."], memory: ["M", "The memory: what it attends to."], bs: ["X Xᵀ", "How alike every two tokens are: their dot product."],
        bw: ["softmax(X Xᵀ)", "Every row becomes weights that sum to 1."], by: ["softmax(X Xᵀ) X", "Every token becomes a weighted mean of all. Nothing was learned here."],
        q: ["Q = X Wq", "Queries: what every token asks for."], k: ["K = X Wk", "Keys: what every token offers to be found by."], v: ["V = X Wv", "Values: what every token hands over."],
        scores: ["Q Kᵀ", "Every query with every key."], scaled: ["Q Kᵀ / √d", "Scaled, so that the softmax does not saturate."],
        masked: ["mask", "What may not be seen is −∞."], weights: ["softmax", "Every row becomes weights that sum to 1."], context: ["softmax · V", "Every token gets the weighted mean of the values."],
        heads: ["[head 1; head 2; …]", "The heads beside each other."], output: ["[…] Wo", "Projected: what the layer adds to its input."],
      },
    },
    help: {
      title: "Keys", close: "Close",
      keys: [["1 – 9, 0", "head; 0: the mean"], ["[ ]", "layer before, after"], ["← →", "token or step before, after"], ["Space", "next step, in Numbers"], ["Esc", "choose nothing"], ["c", "compare two runs"], ["?", "this list"]],
    },
  },
  ko: {
    other: "English", theme: "밝게 / 어둡게", keys: "단축키", input: "입력", output: "출력", run: "모델", text: "글", score: "로그 확률",
    facts: run => `${run.model}, ${run.task.replaceAll("_", " ")}, 파라미터 ${run.parameters.toLocaleString("ko")}개`,
    unknown: keys => `주소에 이 페이지가 모르는 이름이 있습니다: ${keys.join(", ")}.`, layer: "층", head: "헤드", mean: "헤드 평균", all: "모든 단계", save: "저장:",
    window: (from, to, of) => `토큰 ${of.toLocaleString("ko")}개 가운데 ${from.toLocaleString("ko")}번째부터 ${to.toLocaleString("ko")}번째까지 보입니다. 다른 곳은 --start로 봅니다. 창 안의 가중치는 합이 1이 아닐 수 있습니다.`,
    tabs: {
      attention: "어텐션", alignment: "정렬", next: "다음 토큰", search: "탐색 트리", labels: "답", highlights: "강조", image: "이미지", compare: "비교",
      numbers: "계산 과정", gates: "게이트", vectors: "벡터", positions: "위치", training: "학습",
    },
    side: { source: "입력 문장", said: "예측할 토큰", read: "읽은 토큰" },
    layerName: { encoder: "인코더", decoder: "디코더", self: "셀프 어텐션", cross: "크로스 어텐션", block: "층" },
    attention: {
      help: "모든 층과 헤드입니다. 하나를 고르고, 토큰이나 칸을 가리키면 어디에 주목하는지 보입니다.", root: "√ 눈금 (작은 가중치도 보이게)",
      told: (query, key, weight) => `${query} → ${key}: 가중치 ${weight}`, links: "토큰 연결", table: "표로 보기",
      caution: "어텐션은 정보를 어디서 가져왔는지 말할 뿐, 그것으로 무엇을 했는지는 말하지 않습니다.",
      row: query => `${query}: 가장 주목한 곳`, column: key => `${key}: 가장 주목받은 곳`,
    },
    alignment: {
      help: "위는 입력, 아래는 출력의 어절입니다. 띠의 굵기가 가중치이고, 출력 어절마다 가장 강한 연결은 진하게 그립니다.", threshold: "이보다 작은 가중치 숨기기",
      read: name => `${name}에서 읽음`, told: (target, source, weight) => `${target} ← ${source}: ${weight}`, list: "가장 강한 연결",
    },
    next: {
      help: "토큰을 고르면 그 자리에서 모델이 무엇을 더 고려했는지 보입니다. 슬라이더는 샘플링과 똑같이 분포를 다시 정규화합니다.",
      at: token => `“${token}” 자리의 후보`, temperature: "온도", k: "top-k (0: 전체)", p: "top-p", others: count => `그 밖의 ${count.toLocaleString("ko")}개`,
      kept: (count, mass) => `뽑힐 수 있는 토큰은 ${count.toLocaleString("ko")}개이고, 분포의 ${mass}를 차지합니다.`,
      beyond: "이 파일에 실린 것보다 많은 토큰이 뽑힐 수 있습니다. 비율은 마지막 토큰 하나만큼의 오차 안에서 맞습니다.",
      surprisal: "놀라움(surprisal)", bits: "비트", total: (bits, mean) => `모두 ${bits}비트, 토큰마다 평균 ${mean}비트`, prompt: "흐린 토큰은 프롬프트입니다.",
    },
    search: {
      help: "모든 단계의 모든 후보입니다. ←와 →로 단계를, Tab으로 후보를 옮겨 다닙니다. 고르면 그 길이 보입니다.", step: "보이는 단계", pruned: "버려진 후보도 보기",
      facts: (method, count) => `${method}, 후보 ${count.toLocaleString("ko")}개`, proven: "최선임이 증명됨", unproven: "최선임이 증명되지 않음",
      fates: {
        kept: "계속 이어졌습니다", ended: "완성된 출력입니다", beam: "버려짐: 점수가 더 높은 후보가 너무 많았습니다", bound: "버려짐: 무엇이 이어져도 이길 수 없었습니다",
        complete: "잇지 않음: 완성된 출력이 충분했습니다", limit: "잇지 않음: 허용된 가장 긴 길이입니다", budget: "잇지 않음: 탐색 예산을 다 썼습니다",
        seed: "재지 않음: 탐색이 시작할 때 쓴 빔 출력의 일부입니다",
      },
      told: (token, share, total, normalized, bound) => `${token}: 확률 ${share}, 합 ${total}, 정규화 ${normalized}, 이렇게 시작하는 출력의 상한 ${bound}`,
      hidden: count => `점수가 낮은 후보 ${count.toLocaleString("ko")}개는 그리지 않았습니다.`, best: "가장 좋은 출력",
    },
    labels: {
      help: "레이블마다의 확률입니다.", tags: "어절마다의 태그와 그 확률입니다.", answer: "글 속의 답입니다.",
      roles: "누가 누구에게 무엇을 했는지, 서술어마다 한 줄입니다.", noRoles: "이 글에는 서술어가 없습니다.",
      clusters: "같은 것을 가리키는 이름, 대명사, 명사입니다.", noClusters: "두 번 가리킨 것이 없습니다.",
      kinds: { probability: "확률이 가장 높은 후보입니다.", score: "점수가 가장 높은 후보입니다. 점수는 확률이 아닙니다.", cosine: "얼마나 가까운지를 코사인으로 나타냅니다." },
    },
    image: { help: "이미지를 단어마다 한 번씩 그렸습니다. 단어가 주목한 곳이 밝습니다.", whole: "이미지", told: most => `가장 큰 가중치 ${most}` },
    highlights: { help: "진할수록 분류기가 더 주목한 말입니다. 막대는 문장의 가중치입니다.", view: "시점", told: (piece, weight) => `${piece}: ${weight}` },
    compare: {
      help: "같은 글을 두 모델에 넣었습니다. 한쪽에만 있는 말을 표시하고, 막대는 토큰마다 든 비트입니다.", with: "와", same: "두 출력이 같습니다.", differ: "두 출력이 다릅니다.",
      sum: "여기까지의 비트", difference: "어텐션의 차이", none: "두 모델에는 같은 토큰 사이의 어텐션이 없습니다.", told: (query, key, one, two) => `${query} → ${key}: ${one}, ${two}`, cannot: "이 모델은 이 글을 읽지 못합니다",
    },
    positions: {
      help: { sinusoidal: "사인과 코사인을 번갈아 쓴 위치 벡터입니다. 오른쪽으로 갈수록 천천히 변합니다.", learned: "학습된 위치 벡터입니다.", rotary: "회전 위치: 쿼리와 키를 회전하는 각의 사인과 코사인입니다." },
      shown: (rows, columns, size) => `위치 ${rows}개 × ${columns}차원 (전체 ${size[0]} × ${size[1]}).`, map: "위치", near: "위치끼리의 내적",
      told: (row, column, value) => `위치 ${row}, 차원 ${column}: ${value}`, pair: (row, column, value) => `위치 ${row}와 ${column}: ${value}`,
      mix: "층의 섞임", layer: number => `${number}층`, scale: value => `배율 γ = ${value}`,
    },
    training: { help: "학습과 검증의 곡선입니다.", metric: "지표", log: "로그 눈금", step: "업데이트", train: "학습", valid: "검증", told: (name, step, value) => `${name}, 업데이트 ${step}: ${value}` },
    gates: {
      help: "토큰마다 순환층의 게이트가 한 일입니다. 위는 유닛 전체의 평균, 아래는 유닛 하나하나입니다.", layer: "층", gate: "게이트", mean: "유닛 평균", units: "모든 유닛",
      names: { i: "입력 게이트 i", f: "망각 게이트 f", o: "출력 게이트 o", g: "후보 g", c: "셀 c", r: "리셋 게이트 r", z: "업데이트 게이트 z", n: "후보 n", h: "상태 h" },
      told: (token, name, value) => `${token}, ${name}: ${value}`, unit: number => `유닛 ${number}`,
      some: (shown, all) => `유닛 ${all}개 가운데 앞의 ${shown}개입니다. 평균은 전체의 평균입니다.`,
      kinds: { lstm: "c = f ∘ 앞의 c + i ∘ g, h = o ∘ tanh c.", gru: "h = (1 − z) ∘ n + z ∘ 앞의 h: z가 1에 가까우면 상태를 지키고, r이 0에 가까우면 후보 n에서 상태를 잊습니다.", tanh: "h = tanh(W x + U 앞의 h): 이 셀에는 게이트가 없습니다." },
    },
    vectors: {
      help: "점 하나는 문장 속의 말 하나이고, 분산이 가장 큰 평면에 놓았습니다. 고르면 가장 가까운 이웃이 보입니다.", layer: "층", nearest: word => `${word}의 이웃`,
      explained: (x, y) => `분산의 ${x}와 ${y}`, cosine: "코사인", find: "말 찾기", words: "점 하나는 어휘의 말 하나이고, 분산이 가장 큰 평면에 놓았습니다. 고르면 가장 가까운 이웃이 보입니다.",
    },
    numbers: {
      help: "어텐션을 수 하나하나까지 보여 줍니다. 스페이스로 다음 단계로 가고, 칸을 가리키면 어떻게 계산했는지 보입니다.", head: "헤드", next: "다음 단계", previous: "앞 단계",
      scaled: value => `÷ √${value}`, from: "계산", basic: "파라미터 없는 기본 셀프 어텐션", one: number => `헤드 ${number}`, joined: "모든 헤드", table: "표로 보기",
      steps: {
        x: ["X", "층이 읽는 것: 토큰마다 벡터 하나."], memory: ["M", "메모리: 주목받는 쪽."], bs: ["X Xᵀ", "두 토큰이 얼마나 닮았는가: 내적."],
        bw: ["softmax(X Xᵀ)", "행마다 합이 1인 가중치가 됩니다."], by: ["softmax(X Xᵀ) X", "토큰마다 모든 토큰의 가중 평균이 됩니다. 학습된 것은 아직 없습니다."],
        q: ["Q = X Wq", "쿼리: 토큰이 찾는 것."], k: ["K = X Wk", "키: 토큰이 찾아지는 이름."], v: ["V = X Wv", "값: 토큰이 내주는 것."],
        scores: ["Q Kᵀ", "모든 쿼리와 모든 키의 내적."], scaled: ["Q Kᵀ / √d", "소프트맥스가 한쪽으로 쏠리지 않게 나눕니다."],
        masked: ["마스크", "보면 안 되는 곳은 −∞입니다."], weights: ["softmax", "행마다 합이 1인 가중치가 됩니다."], context: ["softmax · V", "토큰마다 값의 가중 평균을 받습니다."],
        heads: ["[헤드 1; 헤드 2; …]", "헤드를 나란히 이어 붙입니다."], output: ["[…] Wo", "투영: 층이 입력에 더하는 것."],
      },
    },
    help: {
      title: "단축키", close: "닫기",
      keys: [["1 – 9, 0", "헤드, 0은 평균"], ["[ ]", "앞 층, 뒤 층"], ["← →", "앞뒤 토큰이나 단계"], ["스페이스", "계산 과정의 다음 단계"], ["Esc", "고른 것 놓기"], ["c", "두 모델 비교"], ["?", "이 목록"]],
    },
  },
};

/** The name of an attention layer, `decoder.1.cross`, for people. */
export function layerName(name, said) {
  const [layer, again] = name.split(":"), parts = layer.split(".");
  const words = parts.map(part => (/^\d+$/.test(part) ? Number(part) + 1 : said.layerName[part] ?? part));
  const side = typeof words[0] === "number" ? `${said.layerName.block} ${words.shift()}` : words.shift();
  const first = typeof words[0] === "number" ? `${side} ${words.shift()}` : side;
  return [first, ...words].join(", ") + (again ? ` (${again})` : "");
}
